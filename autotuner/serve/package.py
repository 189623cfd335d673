"""A folder that is a wheel project and, at the same time, a build of Hugging Face's `kernels`.

What it needs at run time is in it: the variants as they were proven, linked into one library with the dispatch and an
op of torch; and a little Python. Neither a compiler nor autotuner is needed there.
"""

import hashlib
import importlib.util
import json
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotuner.devices.kind import Packaging
from autotuner.forge.build import shared_object
from autotuner.forge.build_inputs import abi_dir, files_of, source_digests
from autotuner.forge.compiling import run_compiler
from autotuner.forge.linkable import PLAIN, compiled, python_symbols, versions_needed
from autotuner.ops import OPS
from autotuner.ops.op import Op, shape_of
from autotuner.serve.folder import Source, filled, fresh, linked, name_of, packaged, stated
from autotuner.serve.runtime import whole
from autotuner.serve.table import digest_of_table
from autotuner.serve.table_source import signature_lines, table_lines
from autotuner.values.problem import Problem, Shape
from autotuner.values.ratio import BIASED
from autotuner.values.table import COUNTS, DispatchTable, TableEntry
from autotuner.values.variant import digest_of
from autotuner.values.versions import version_of

SOURCE = "torch_op.cpp"
"""The file in an op's ABI folder that makes it an op of torch."""
OLDEST_TORCH = "2.10"
"""Whose stable ABI has all that the op calls (torch_op.h compiles for it)."""
INIT = "package_init.py.in"
"""The template of a package's own module."""


def write_folder(table: DispatchTable, source: Source, target: Path) -> str:
    """Writes the folder of a table; what it says of itself, in a line. Raises InputError where the table, its variants
    or the folder's name do not go into a package, ToolchainError where it cannot be compiled."""
    op, kind = packaged(table)
    module = f"autotuner_{name_of(target)}"
    with fresh(target) as private:
        scratch = private / "scratch"
        scratch.mkdir()
        abi, device = f"torch-stable-abi{OLDEST_TORCH.replace('.', '')}", kind.folder(source.toolchain)
        inside = private / "build" / f"{abi}-{device}-{platform.machine()}-{platform.system().lower()}"
        needs = write_module(table, source, module, inside, scratch)
        shutil.rmtree(scratch)
        _write_project(table, module, inside, private, needs)
    place = target if target.is_absolute() else f"./{target}"  # a bare name is looked for in the index
    return f"pip install {place}, then: from {module} import {op.signature.NAME}"


def write_module(table: DispatchTable, source: Source, module: str, inside: Path, scratch: Path) -> dict[str, str]:
    """Makes the folder `inside`, which is the module itself; what its library needs of the system."""
    op, kind = packaged(table)
    library = _library(table, source, module, scratch)
    needs = versions_needed(library)
    inside.mkdir(parents=True)
    shutil.move(library, inside / library.name)
    for name, copied in _copied(op, kind).items():
        shutil.copyfile(copied, inside / name)
    (inside / "__init__.py").write_text(filled(INIT, {"TITLE": op.signature.TITLE, "NAME": op.signature.NAME}))
    _write_metadata(table, module, inside, library.name, needs)
    return needs


def _copied(op: Op, kind: Packaging) -> dict[str, Path]:
    """Python of every package, by file name."""
    files = sorted(Path(whole.__file__).parent.glob("[!_]*.py"))
    return {**{each.name: each for each in files}, **kind.copied, "signature.py": Path(str(op.signature.__file__))}


def package_digest(table: DispatchTable) -> str:
    """What a package in the cache is called: a digest of all that it is made of, as far as that is known without a
    compiler. Raises InputError as `packaged` does."""
    op, kind = packaged(table)
    op_dir = op.abi()
    sources = source_digests(files_of([op_dir / SOURCE, abi_dir() / "package.h"], (abi_dir(), op_dir)))
    python = {name: path.read_text() for name, path in _copied(op, kind).items()}
    here = [platform.machine(), platform.system(), version_of("kernel-autotuner"), OLDEST_TORCH]
    return digest_of([digest_of_table(table), sources, python, (abi_dir() / INIT).read_text(), here])


def _library(table: DispatchTable, source: Source, module: str, scratch: Path) -> Path:
    """All of the package that is machine code, as one library."""
    op_dir = OPS[table.op].abi()
    include_dirs = (abi_dir(), op_dir)
    torch = Path(importlib.util.find_spec("torch").origin).parent  # type: ignore[union-attr, arg-type]  # not imported
    op = shared_object(source.toolchain, op_dir / SOURCE, (*include_dirs, torch / "include"), PLAIN)
    tables = scratch / "table.cpp"
    tables.write_text("\n".join([*_package_lines(table, module), ""]))
    objects = [op, compiled(source.toolchain, tables, include_dirs), *linked(table, source, module, scratch)]
    made = scratch / f"_{module}.so"
    libraries = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-ldl"]
    safe = ["-shared", "-s", "-pthread", "-Wl,-z,defs", "-Wl,--no-undefined-version", "-Wl,--allow-shlib-undefined"]
    command = [source.toolchain.compiler, *safe, *map(str, objects), *libraries, "-o", str(made)]
    run_compiler(command, scratch, (*objects, torch / "lib"))
    return made


def _package_lines(table: DispatchTable, module: str) -> Iterator[str]:
    yield '#include "package.h"'
    yield f'#include "{table.op}_call.h"'
    yield from table_lines(table, module)
    yield from signature_lines(OPS[table.op])
    facts = table.proven_on
    numbers = [int(facts.get(name, 0)) for name in COUNTS]
    fields = ", ".join(map(str, [int(packaged(table)[1].accelerator), *numbers]))
    yield f'extern "C" const at_package autotuner_package = {{"{module}", AT_TABLE, AT_SIGNATURE, {fields}}};'


def _write_metadata(table: DispatchTable, module: str, variant: Path, library: str, needs: dict[str, str]) -> None:
    """metadata.json: what `kernels` reads, and what the package needs and where it comes from."""
    _, kind = packaged(table)
    export = {
        **stated(table, kind),
        "namespace": module,
        "library": library,
        "device": table.device,
        "accelerator": kind.accelerator,
        "needs": {"torch": OLDEST_TORCH, "symbols": needs, "python_symbols": python_symbols(variant / library)},
        "proven_on": table.proven_on,
        "variants": [str(each.variant) for each in table.variants],
        "sizes": _sizes(table),
        "warm": [_call(table, each.problem) for each in _smallest(table)] if kind.accelerator else [],
    }
    digests = {path.name: whole.digest_of(path.read_bytes()) for path in sorted(variant.iterdir())}
    document = {
        "id": f"{module}_{hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:8]}",
        "name": module.replace("_", "-"),
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": kind.backend(table.proven_on),
        "digest": {"algorithm": "sha256", "files": digests},
        "autotuner": export,
        "autotuner-digest": whole.digest_of(json.dumps(export, sort_keys=True).encode()),
    }
    (variant / "metadata.json").write_text(json.dumps(document, indent=1) + "\n")


def _sizes(table: DispatchTable) -> list[tuple[str, tuple[Shape, ...], tuple[Shape, ...]]]:
    """Of the problems that the table speaks of: the first tensor's element type, and the least and the largest of each
    size of the first two tensors. A call with others is torch's, whatever else it is."""
    alone = [*(each.problem for each in table.entries), *(each.problem for each in table.left_out)]
    found = list(zip(alone, alone, strict=True))
    found += [(each.like.sized(each.low), each.like.sized(each.high)) for each in table.ranges]
    tensors = OPS[table.op].inputs(found[0][0])[:2]

    def shapes(problem: Problem) -> tuple[Shape, ...]:
        return tuple(shape_of(each, problem) for each in tensors)

    return list(dict.fromkeys((low.dtype, shapes(low), shapes(high)) for low, high in found))


def _smallest(table: DispatchTable) -> list[TableEntry]:
    """For each variant the smallest problem that it serves."""
    found: dict[str, TableEntry] = {}
    for entry in sorted(table.entries, key=lambda each: each.problem.bytes):
        if entry.use is not None:
            found.setdefault(entry.use, entry)
    return list(found.values())


def _call(table: DispatchTable, problem: Problem) -> dict[str, Any]:
    """A call of the problem: elements and element type of each memory, of each tensor the number of its memory, sizes,
    strides and where it begins; and the options."""
    op, _ = packaged(table)
    memory: dict[int, tuple[int, str]] = {}
    tensors = []
    for each in op.tensors().inputs(problem, op.ordinary, 0):
        storage = each.untyped_storage()
        memory[storage.data_ptr()] = storage.nbytes() // each.element_size(), str(each.dtype).removeprefix("torch.")
        place = [*memory].index(storage.data_ptr())
        tensors.append((place, [*each.shape], [*each.stride()], each.storage_offset()))
    return {"memory": [*memory.values()], "tensors": tensors, "options": op.torch.options(problem)}


def _write_project(table: DispatchTable, module: str, variant: Path, folder: Path, needs: dict[str, str]) -> None:
    """What makes a wheel of it, and a page for people."""
    digest = digest_of_table(table)[:8]
    glibc = needs.get("GLIBC", "2.17").replace(".", "_")
    said = {
        **{"TITLE": OPS[table.op].signature.TITLE, "DIST": module.replace("_", "-"), "VERSION": f"1.0+{digest}"},
        **{"TORCH": OLDEST_TORCH, "FOLDER": f"build/{variant.name}", "MODULE": module},
        "TAG": f"manylinux_{glibc}_{platform.machine()}",
    }
    (folder / "pyproject.toml").write_text(filled("package_project.toml.in", said))
    (folder / "hatch_build.py").write_text(filled("package_hatch.py.in", said))
    (folder / "README.md").write_text("\n".join([*_readme(table, module, needs), ""]))


def _readme(table: DispatchTable, module: str, needs: dict[str, str]) -> Iterator[str]:
    signature = OPS[table.op].signature
    yield f"# {module}\n"
    yield f"{signature.TITLE} as autotuner tuned it. `{signature.NAME}` takes what torch's function takes.\n"
    yield f"```python\nfrom {module} import {signature.NAME}\n```\n"
    if table.estimates:
        yield f"**{BIASED}**\n"
    proven = ", ".join(f"{name} {value}" for name, value in table.proven_on.items())
    yield f"Proven on {table.device} with {proven}. On another device torch serves the calls."
    symbols = ", ".join(f"{name} {version}" for name, version in needs.items())
    yield f"It needs torch {OLDEST_TORCH} or later, any Python from 3.10 on, and of the system {symbols}.\n"
    yield "| problem | served by |\n| --- | --- |"
    names = {each.artifact: str(each.variant) for each in table.variants}
    for entry in table.entries:
        yield f"| {entry.problem} | {names[entry.use] if entry.use else f'torch: {entry.why}'} |"
