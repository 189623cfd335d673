"""Ops of rows. Their tensors are (rows, columns), or (columns,) for all rows, and a row of the output follows from that
row of the inputs alone: what such ops have in common.

torch is imported where it is used: what reads a report wants the words alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from autotuner.ops.op import Cases, Input, Invariant, Op, OpCase, Output, Relation, Words, invariant
from autotuner.values.problem import ITEM_BYTES, Problem, Shape, doublings
from autotuner.values.validation import show
from autotuner.values.variant import Value

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.ops.tensors import Tensors

SIZES = re.compile(r"\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)(.*)")
COPIED: Shape = (1031, 4093)
"""Large: rounded to 16 bits, an answer differs from another right one in one element of some hundred thousand."""
LONGEST_ROW, MOST_ROWS = 16500, 300
"""No shape around a tile is above these."""


class RowProblem(Problem):
    """Rows of numbers. DIMS are the rows and the columns; SCALARS are fields with a usual value."""

    TENSORS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Of each input, then of the output, by name: the names of its sizes."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `str` writes it; a number that is not said has its usual value."""
        found = SIZES.fullmatch(text.strip())
        if found is None:
            example = " ".join(["(512,4096) float32", *(f"{name}={cls._usual(name):g}" for name in cls.SCALARS)])
            raise ValueError(f"found {show(text)}, expected {cls.FORM}, such as {show(example)}")
        *sizes, rest = found.groups()

        def read(word: str) -> dict[str, object]:
            name, _, value = word.lower().partition("=")
            try:
                return {name: float(value)} if name in cls.SCALARS else {}
            except ValueError:
                said = f"{show(text)}: {name}: found {show(value)}, expected a number such as 1e-05"
                raise ValueError(said) from None

        return cls.of_words(text, dict(zip(cls.DIMS, map(int, sizes), strict=True)), rest, read, cls.SCALARS)

    @classmethod
    def _usual(cls, name: str) -> float:
        return float(cls.model_fields[name].default)

    @property
    def flops(self) -> int:
        """One for each number of the largest tensor, at least."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        numbers = [math.prod(int(getattr(self, size)) for size in sizes) for sizes in self.TENSORS.values()]
        return sum(numbers) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        unusual = [f"{n}={getattr(self, n):g}" for n in self.SCALARS if getattr(self, n) != self._usual(n)]
        return " ".join([f"({','.join(map(str, self.shape))})", self.dtype, *unusual])


def row_op(
    kind: type[RowProblem],
    baseline: str,
    distributions: Mapping[str, str],
    quick: Sequence[OpCase],
    full: Sequence[OpCase],
    scaled: str,
    own: tuple[Invariant, ...] = (),
    **more: Any,
) -> Op:
    """The op of such problems. `scaled`: the distribution in which each row has a size of its own. `own`: invariants
    that not every such op has. `more` are other parts of `Op`."""
    *read, written = kind.TENSORS
    sizes = kind.TENSORS
    usual = {"compiled": lambda problem: True, "default_spaces": {}, **more}
    return Op(
        name=kind.model_fields["op"].default,
        problem=kind,
        inputs=lambda problem: tuple(Input(name, problem.dtype, sizes[name]) for name in read),
        outputs=lambda problem: (Output(written, problem.dtype, sizes[written], row=1, slice=1),),
        ordinary="randn",
        cases=_cases(quick, full, scaled),
        invariants=(*own, *(INVARIANTS if len(read) > 1 else INVARIANTS[:-1])),
        distance=_distance,
        usual=lambda macros: _like(kind, macros),
        words=Words(
            baseline=baseline,
            axes=("row", "column")[: len(sizes[written])],
            distributions=distributions,
            case=lambda shape, macros: f"{shape[0]} rows of {shape[1]}{', ' * bool(macros)}{macros.get('DTYPE', '')}",
            nonfinite="a sum or a power that overflowed the type it was computed in, or memory that was read unwritten",
            every_row="something that they share: a scalar, a divisor, an input that all rows have in common",
            some_columns="a part of the row, such as its tail, or of an input that all rows share, is wrong",
        ),
        **usual,
    )


def _like(kind: type[RowProblem], macros: Mapping[str, str]) -> Problem:
    """A problem to judge a variant on that is compiled with these macros."""
    rows, columns = kind.DIMS
    sizes = {rows: 512, columns: int(macros.get(columns.upper(), 4096))}
    return kind.model_validate({**sizes, "dtype": macros["DTYPE"]}, strict=True)


def _distance(one: Problem, other: Problem) -> float:
    """In doublings and changes. Rows are only more of the same work until they fill the machine; the row's length
    changes what fits into registers and caches. No kernel is chosen by a scalar."""
    (rows, columns), (other_rows, other_columns) = one.shape, other.shape
    item = doublings(ITEM_BYTES[one.dtype], ITEM_BYTES[other.dtype])
    return (
        0.5 * doublings(rows, other_rows)
        + doublings(columns, other_columns)
        + 0.5 * (one.dtype != other.dtype)
        + 2.0 * item
    )


def _cases(quick: Sequence[OpCase], full: Sequence[OpCase], scaled: str) -> Cases:
    def with_tile(problem: Problem, tile: tuple[int, ...]) -> Iterator[OpCase]:
        yield from full
        rows, columns = tile
        for length in sorted({columns - 1, columns, columns + 1, 2 * columns + columns // 2 + 1}):
            if 1 <= length <= LONGEST_ROW:
                yield OpCase((5, length), "randn", "tile ")
        for count in sorted({rows - 1, rows + 1, 2 * rows + rows // 2}):
            if 1 <= count <= MOST_ROWS:
                yield OpCase((count, 331), scaled, "tile ")

    return Cases(
        smoke=(5, 65),
        quick=lambda problem: tuple(quick),
        full=with_tile,
        tuned=lambda problem: (min(problem.shape[0], 67), problem.shape[1]),
        copied=COPIED,
        invariant=(21, 1003),  # ragged in both sizes
        repeated=(96, 517),
        soak=(32, 257),
        between=(7, 91),
        between_large=(300, 3000),
        demanding=scaled,
        # a tool may slow a kernel down a hundred times
        sanitized=lambda tile: ((3, 67), (1, 1), (min(tile[0], MOST_ROWS) + 1, min(tile[1], 4096) + 3)),
        tile=_tile,
    )


def _tile(parameters: Mapping[str, Value], resources: Mapping[str, int]) -> tuple[int, ...]:
    """(rows, columns): the rows of a block, as the variant is launched or its parameter ROWS; and the columns that the
    threads of a row take in one step, or hold in registers, by the parameters that say so."""

    def number(name: str, usual: int) -> int:
        return int(parameters.get(name, usual))

    rows = resources.get("rows", number("ROWS", 4))
    columns = number("VEC_WIDTH", 1) * number("LANES", 1) * max(1, number("HOLD", number("UNROLL", 1)))
    return (rows, columns if columns > 1 else 256)


# What must hold exactly, without a reference (G3) --------------------------------------------------------------------


def _on_rows(inputs: Tensors, change: Callable[[Tensor], Tensor]) -> Tensors:
    """The inputs, those with rows changed."""
    return tuple(change(each) if each.dim() > 1 else each for each in inputs)


@invariant(
    "G3.permute",
    "permuting the rows of the inputs permutes the output, nothing else",
    "the addressing of rows, or a sum whose order depends on the row's place",
)
def permute(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    import torch

    order = torch.randperm(problem.shape[0], generator=torch.Generator().manual_seed(seed))
    changed = _on_rows(inputs, lambda each: each[order])
    broken = "permuting the rows of the inputs does not permute those of the output"
    yield Relation(changed, lambda plain, other: (other[0], plain[0][order]), broken)


@invariant(
    "G3.other_rows",
    "what every second row holds does not reach the others",
    "a sum that is not cleared between rows, or that is shared by several",
)
def other_rows(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    def change(each: Tensor) -> Tensor:
        changed = each.clone()
        changed[1::2] *= 100
        return changed

    broken = "changing every second row changes the rows between"
    yield Relation(_on_rows(inputs, change), lambda plain, other: (other[0][::2], plain[0][::2]), broken)


@invariant(
    "G3.spread",
    "a number that is NaN or infinite comes out where the definition has it, and changes no other row",
    "a clamp that drops NaN, or numbers that are cleaned before they are used",
)
def spread(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """NaN in one number of an input comes out where the reference has it, and infinity in one of the first. That is a
    CPU's: torch's fused rms_norm on CUDA makes all of a row NaN that has an infinity, which the formula does not."""
    import torch

    from autotuner.ops import op_of
    from autotuner.ops.tensors import moved, where_lost

    op, generator = op_of(problem), torch.Generator().manual_seed(seed)
    detail = "{} in one number of {} does not come out where it must, or changes another row"
    for value, place in ((math.nan, 0), (math.inf, 0), *((math.nan, place) for place in range(1, len(inputs)))):
        changed = [each.clone() for each in inputs]
        at = [int(torch.randint(size, (1,), generator=generator)) for size in changed[place].shape]
        changed[place][tuple(at)] = value
        (exact,) = op.tensors().reference(problem, moved(tuple(changed), "cpu"))
        due = ~exact.isfinite().to(inputs[0].device)
        touched = due.clone()
        if len(at) > 1:
            touched[at[0]] = True
        yield Relation(tuple(changed), where_lost(due, touched), detail.format(value, op.inputs(problem)[place].name))


@invariant(
    "G3.overlap",
    "the other inputs may lie within the first",
    "an input is written to, or what is read of one is taken for the other's",
)
def overlap(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    from autotuner.ops.tensors import first_outputs

    first, *others = inputs
    memory = first.flatten().repeat(2)
    for begin in (0, 8):  # aligned to 16 bytes
        views = (memory[begin : begin + each.numel()].view(each.shape) for each in others)
        within = (memory[: first.numel()].view(first.shape), *views)
        detail = "inputs that lie within another give another result than copies"
        yield Relation(within, first_outputs, detail, before=tuple(each.clone() for each in within))


def scaled_by(name: str, place: int) -> Invariant:
    """-4 times that input gives exactly -4 times the output."""

    @invariant(
        f"G3.scale_{name.lower()}",
        f"-4 {name} gives exactly -4 times the output",
        "a constant in the arithmetic (a clamp, something added), or a result that does not come from it",
    )
    def scaled(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
        from autotuner.ops.tensors import so_many_times

        changed = tuple(-4 * each if at == place else each for at, each in enumerate(inputs))
        yield Relation(changed, so_many_times(-4), f"-4 {name} does not give exactly -4 times the output")

    return scaled


INVARIANTS = (permute, other_rows, spread, overlap)
"""Of every op of rows; the last one of those with several inputs."""
