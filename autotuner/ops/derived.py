"""An op of rows from its formula: `op(...)` makes all that the other rooms ask of one."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PositiveInt, create_model

from autotuner.ops import OPS
from autotuner.ops.op import Op, OpCase, digest_of_file
from autotuner.ops.rows import RowProblem, row_op, scaled_by
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.files import write_atomically
from autotuner.values.problem import Dtype

if TYPE_CHECKING:
    from torch import Tensor

NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
"""Of an op, an input, a size or a scalar: a name in C and in Python."""

DISTRIBUTIONS = {
    "randn": "standard normal",
    "sizes": "normal, each row times a power of two of its own: what is of another row shows at full size",
    "equal": "each row holds one number",
}
QUICK = (
    OpCase((37, 1000), "sizes", "Q1 "),
    OpCase((12, 4097), "randn", "Q2 "),
    OpCase((19, 509), "equal", "Q3 "),
    OpCase((200, 203), "randn", "Q4 "),
)
FULL = (
    *(OpCase(shape, "randn") for shape in ((512, 64), (33, 4096), (1, 8192), (5, 1), (1, 1), (2, 63), (65, 515))),
    *(OpCase(shape, "sizes") for shape in ((3, 16384), (129, 768), (31, 2048), (40, 320))),
)
"""Few rows and many, short ones and long ones, and a single number."""
ALIKE = "each number follows from those at its place, and is rounded once: right outputs are alike"
Sizes = tuple[str, ...]
OWN_SHAPE = (65, 515)
"""Of the case of a distribution that the op has of its own."""


def op(
    name: str,
    inputs: Mapping[str, str],
    formula: Callable[..., Tensor],
    *,
    output: str | None = None,
    scalars: Mapping[str, float] | None = None,
    distributions: Mapping[str, Callable[..., Any]] | None = None,
) -> Op:
    """An op whose kernels compute `formula`, a function of tensors in torch, for each row by itself. It is known by its
    name where this module is imported, and on this machine from then on.

    `inputs`, by name: "rows x dim", or "dim" for one that all rows share; the words are the names of the two sizes, the
    same in each. The output has the first input's, or `output`: "rows" for one number a row. `scalars`: numbers that
    the formula takes by name, with their usual values. `distributions`, by name: a function from the inputs as they
    are drawn, standard normal, to others that show mistakes.

    Raises InputError for what is no such op.
    """
    if not (inspect.isfunction(formula) or inspect.ismethod(formula)):
        raise InputError(f"{name}: the formula is {formula!r:.60}, expected a function of Python, such as a lambda")
    numbers, own = dict(scalars or {}), dict(distributions or {})
    shapes = {each: tuple(re.split(r"\s+x\s+", said.strip())) for each, said in inputs.items()}
    sizes: Sizes = next(iter(shapes.values()), ())
    due = sizes if output is None else tuple(re.split(r"\s+x\s+", output.strip()))
    _require(name, shapes, sizes, due, [*numbers, *own])
    kind = _problem(name, sizes, {**{each.upper(): shape for each, shape in shapes.items()}, "Y": due}, numbers)
    from autotuner.ops.row_tensors import RowTensors  # imports torch, as whoever writes a formula has done

    tensors = RowTensors(kind, formula, own=own)
    words = {**DISTRIBUTIONS, **{each: f"as the op's {each} makes them" for each in own}}
    source = Path(inspect.getsourcefile(formula) or "").resolve()
    made = partial(
        row_op,
        *(kind, "torch", words, QUICK, [*FULL, *(OpCase(OWN_SHAPE, each) for each in own)], "sizes"),
        package="autotuner.ops",
        abi=partial(_abi, name, [*shapes], sizes, [*numbers]),
        made=tensors,
        source=source,
    )
    OPS[name] = made()
    try:
        tensors.require_rows()
        own_invariants = tuple(scaled_by([*shapes][place].upper(), place) for place in tensors.scaled)
        OPS[name] = made(own=own_invariants, equals_baseline=lambda problem: ALIKE if tensors.is_elementwise else None)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        del OPS[name]
        raise InputError(f"the formula of {name}: {' '.join(str(error).split())[:300]}") from None
    OPS.remember(name, source)
    digest_of_file(source)
    return OPS[name]


def _require(name: str, shapes: Mapping[str, Sizes], sizes: Sizes, due: Sizes, others: Sequence[str]) -> None:
    """Raises InputError, one line, for names and sizes that make no op of rows."""
    for each in (name, *shapes, *sizes, *others):
        if not NAME.fullmatch(each) or keyword.iskeyword(each):
            raise InputError(f"{name}: {each!r} is no name: expected lower case letters, digits and _")
    if find_spec(f"{__package__}.{name}") is not None:
        raise InputError(f"there is an op {name} already: choose another name")
    if len(sizes) != 2:
        raise InputError(f'{name}: expected two sizes of its first input, such as "rows x dim", found {sizes}')
    names = [*shapes, *sizes, *others, "op", "dtype", "y"]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise InputError(f"{name}: {twice} stands for two things: choose other names")
    for each, shape in shapes.items():
        if shape not in (sizes, sizes[1:]):
            expected = f'"{" x ".join(sizes)}" or "{sizes[1]}"'
            raise InputError(f'{name}: {each}: found "{" x ".join(shape)}", expected {expected}')
    if due not in (sizes, sizes[:1]):
        raise InputError(f'{name}: output: expected "{" x ".join(sizes)}" or "{sizes[0]}"')


def _problem(name: str, sizes: Sizes, tensors: Mapping[str, Sizes], scalars: Mapping[str, float]) -> type[RowProblem]:
    fields: dict[str, Any] = {"op": (Literal[name], name), **dict.fromkeys(sizes, (PositiveInt, ...))}
    fields |= {"dtype": (Dtype, ...), **{each: (float, usual) for each, usual in scalars.items()}}
    kind = create_model(f"{name.capitalize()}Problem", __base__=RowProblem, **fields)
    kind.DIMS, kind.LENGTHS, kind.SCALARS, kind.TENSORS = sizes, sizes[1:], tuple(scalars), tensors
    kind.FORM = " ".join([f"({','.join(sizes)}) dtype", *(f"[{each}=NUMBER]" for each in scalars)])
    return kind


def _abi(name: str, inputs: Sequence[str], sizes: Sequence[str], scalars: Sequence[str]) -> Path:
    """The folder of the headers that name the slots of a call, and of the launcher on CUDA; written where it is not."""
    slots = {"in": inputs, "out": ["y"], "dim": sizes, "scalar": scalars}
    enums = [
        f"enum {{ {', '.join(f'{name}_{each}'.upper() for each in names)} }}; /* at_call.{slot} */"
        for slot, names in slots.items()
        if names
    ]
    fields = [f"const void *{', *'.join(inputs)};", "void *y;", f"int64_t {', '.join(sizes)};"]
    fields += [f"float {', '.join(scalars)};"] if scalars else []
    filled = [f"args.{each} = call->in[{place}];" for place, each in enumerate(inputs)]
    filled += ["args.y = call->out[0];", *(f"args.{each} = call->dim[{place}];" for place, each in enumerate(sizes))]
    filled += [f"args.{each} = (float)call->scalar[{place}];" for place, each in enumerate(scalars)]
    said = {"NAME": name, "ENUMS": "\n".join(enums), "FIELDS": "\n  ".join(fields), "FILLED": "\n  ".join(filled)}
    folder = config.cache_dir().absolute() / "ops" / name
    folder.mkdir(parents=True, exist_ok=True)
    for template in (config.kernels_dir() / "abi" / "rows").iterdir():
        text = template.read_text()
        for key, value in said.items():
            text = text.replace(f"@{key}@", value)
        file = folder / template.name.removesuffix(".in").replace("NAME", name)
        if not file.is_file() or file.read_text() != text:
            write_atomically(file, text)
    return folder
