"""A folder for programs without Python and torch: a header, one C++ file with the dispatch, the variants' objects."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from autotuner.devices.kind import Packaging
from autotuner.forge.build_inputs import abi_dir
from autotuner.forge.linkable import joined
from autotuner.ops import OPS
from autotuner.ops.op import Input, Output
from autotuner.serve.folder import Source, filled, fresh, linked, name_of, packaged, stated
from autotuner.serve.runtime.stated import Stated
from autotuner.serve.table_source import signature_lines, table_lines
from autotuner.values.problem import Problem
from autotuner.values.ratio import BIASED
from autotuner.values.table import DispatchTable

SHARED = ("package.h", "device_model.h")
"""Headers of the ABI that the C file has a copy of, beside the op's."""
ABSENT = (False, "none")
"""What the field of a tensor says in a problem that has none."""
ELEMENTS = {"int32": "AT_INT32", "float32": "AT_FLOAT32", "float8_e4m3fn": "AT_FLOAT8"}
"""Element types of tensors that are not of the problem's."""
SYSTEM = ("algorithm", "atomic", "initializer_list", "mutex", "stddef.h", "stdint.h")
"""Headers that the body needs beside those of the inlined ones."""
INCLUDE = re.compile(r'^#include ([<"])([^">]+)[">].*\n', re.MULTILINE)


def write_c_folder(table: DispatchTable, source: Source, target: Path) -> str:
    """Writes the folder of a table; how it is used, in a line. Raises as `package.write_folder` does."""
    _, kind = packaged(table)
    name = f"autotuner_{name_of(target)}"
    said = {"NAME": name, **_of_signature(table, name)}
    with fresh(target) as private:
        scratch = private / "scratch"
        scratch.mkdir()
        joined(source.toolchain, linked(table, source, name, scratch), private / f"{name}_variants.o")
        shutil.rmtree(scratch)
        (private / f"{name}.h").write_text(filled("function.h.in", said))
        (private / f"{name}.cpp").write_text("\n".join([*_lines(table, name, kind), filled("function.cpp.in", said)]))
        (private / "export.json").write_text(json.dumps(stated(table, kind), indent=1) + "\n")
    return f"link with {name}.cpp and {name}_variants.o"


def _of_signature(table: DispatchTable, name: str) -> dict[str, str]:
    """What the templates have of the op: the call's fields, and how its tensors and options are read from them."""
    op, strided = OPS[table.op], OPS[table.op].torch.strided
    signature = Stated(op.signature)
    problems = [each.problem for each in table.entries]
    like = problems[0].model_copy(
        update={name: _most(problems, name) for name in signature.more if hasattr(problems[0], name)}
    )
    tensors = {each.name.replace(" ", "_"): each for each in op.inputs(like)}
    tensors = dict(zip(signature.required, tensors.values(), strict=False)) | {
        name: each for name, each in tensors.items() if name in signature.more
    }
    places = [*enumerate(signature.required)]
    told = [each for place, each in places if len({op.inputs(of)[place].dtype == of.dtype for of in problems}) > 1]
    out, more = op.outputs(like)[0], {each: tensors[each] for each in signature.more if each in tensors}
    fields = [f"  const void *{each}; /* {_sizes(tensors[each])} */" for each in signature.required]
    fields += [
        f"  const {'int32_t' if of.dtype == 'int32' else 'void'} *{each}; /* {_sizes(of)}; null: none */"
        for each, of in more.items()
    ]
    fields.append(f"  void *out; /* {_sizes(out)} */")
    sizes = dict.fromkeys(str(size) for each in tensors.values() for size in each.shape)
    fields.append(f"  int64_t {', '.join(sizes)};")
    read = [
        _read(f"in[{place}]", each, tensors[each], strided, like.dtype, f"c.{each}_dtype" if each in told else None)
        for place, each in places
    ]
    read += [
        f"  if (c.{each}) {_read(f'in[{place}]', each, tensors[each], False, like.dtype).strip()}"
        for place, each in enumerate(signature.more, len(signature.required))
        if each in tensors
    ]
    read.append(_read("out", "out", out, strided, like.dtype))
    if strided:
        ranks = {**{each: len(tensors[each].shape) for each in signature.required}, "out": len(out.shape)}
        strides = ", ".join(f"{each}_stride[{rank - 1}]" for each, rank in ranks.items())
        fields.append(f"  int64_t {strides};")
        fields.append("  uint32_t one_memory; /* bit i: tensor i is a view of the same memory as the one before */")
        read.append("  for (int i = 1; i < signature.required; i++)")
        read.append("    if (c.one_memory >> i & 1) in[i].storage = in[i - 1].storage;")
    fields += ["  int32_t dtype;", *(f"  int32_t {each}_dtype; /* {name}_FLOAT8, or dtype */" for each in told)]
    fields += [f"  {'int32_t' if each.values else 'double'} {each.name};" for each in signature.options]
    words = [each for option in signature.options for each in enumerate(option.values) if isinstance(each[1], str)]
    return {
        "TITLE": op.signature.TITLE,
        "UNCONFIRMED": fill(BIASED, 118, initial_indent="\n * ", subsequent_indent=" * ") if table.estimates else "",
        "CONSTANTS": (f"#define {name}_FLOAT8 4\n" if told else "")
        + "".join(f"#define {name}_{str(word).upper()} {place}\n" for place, word in words),
        "FIELDS": "\n".join(fields),
        "TENSORS": "\n".join(read),
        "SAID": ", ".join(f"(double)c.{each.name}" for each in signature.options),
    }


def _most(problems: Sequence[Problem], name: str) -> object:
    """What the field of a tensor that need not be there says in the first problem that has it. Where none has, a field
    that is true or false is true, and another as it is."""
    found = [value for each in problems if (value := getattr(each, name)) not in ABSENT]
    return found[0] if found else True if getattr(problems[0], name) is False else getattr(problems[0], name)


def _sizes(of: Input | Output) -> str:
    return f"({', '.join(map(str, of.shape))}{',' if len(of.shape) == 1 else ''})"


def _read(to: str, name: str, of: Input | Output, strided: bool, own: str, told: str | None = None) -> str:
    """`told`: where the call says the element type, of which the table's problems have several."""
    dtype = told or ELEMENTS.get(of.dtype if of.dtype != own else "", "c.dtype")
    sizes = ", ".join(f"c.{size}" for size in of.shape)
    return f"  {to} = tensor_of(c.{name}, {dtype}, {{{sizes}}}, {f'c.{name}_stride' if strided else 'nullptr'});"


def _lines(table: DispatchTable, name: str, kind: Packaging) -> Iterator[str]:
    """All of the C++ file before what it does: the headers of the ABI, and the table."""
    op = OPS[table.op]
    yield f"// Written by autotuner export --format c; {name}.h says how it is used."
    headers, system = inlined([*SHARED, f"{op.name}_call.h"], [abi_dir(), op.abi()])
    yield from (f"#include <{each}>" for each in sorted({*system, *SYSTEM}))
    yield f'#include "{name}.h"\n'
    yield headers
    yield from table_lines(table, name)
    yield from signature_lines(op)
    facts = table.proven_on
    yield f"#define ON_CUDA {int(kind.accelerator)}"
    yield from (f"#define {fact} {int(facts.get(fact, 0))}" for fact in ("SM", "MULTIPROCESSORS"))
    features = [json.dumps(f" {each} ") for each in kind.instructions()]
    yield f"static const char *const features[] = {{{', '.join(features) or 'nullptr'}}};"
    yield f"#define FEATURES {len(features)}"


def inlined(names: list[str], folders: list[Path]) -> tuple[str, list[str]]:
    """The text of headers of ours with those that they include, each once, and the system's headers that they need."""
    done: dict[Path, str] = {}
    system: list[str] = []

    def add(name: str, beside: Path | None = None) -> None:
        near = [beside, *folders] if beside is not None else folders
        path = next(folder / name for folder in near if (folder / name).is_file()).resolve()
        if path in done:
            return
        done[path] = ""  # it is on its way
        text = path.read_text()
        for kind, included in INCLUDE.findall(text):
            if kind == "<":
                system.append(included)
            else:
                add(included, path.parent)
        done[path] = done.pop(path) or INCLUDE.sub("", text)

    for name in names:
        add(name)
    return "\n".join(done.values()), system
