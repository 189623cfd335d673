"""A tiny op of another package: y = the sum of each row of x, (rows, columns). On the CPU alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self, cast

from pydantic import PositiveInt

from autotuner.ops.op import Cases, Input, Invariant, Op, OpCase, Output, Relation, Words
from autotuner.values.problem import ITEM_BYTES, Dtype, Problem, Shape
from autotuner.values.variant import Value

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.ops.tensors import Tensors

HERE = Path(__file__).parent


class RowSumProblem(Problem):
    """The sums of the rows of a matrix."""

    op: Literal["rowsum"] = "rowsum"
    rows: PositiveInt
    columns: PositiveInt
    dtype: Dtype

    FORM: ClassVar[str] = "(rows,columns) dtype"

    @classmethod
    def parse(cls, text: str) -> Self:
        sizes, _, dtype = text.partition(")")
        rows, columns = sizes.strip("( ").split(",")
        return cls.model_validate({"rows": int(rows), "columns": int(columns), "dtype": dtype.strip()})

    DIMS: ClassVar[tuple[str, ...]] = ("rows", "columns")
    LENGTHS: ClassVar[tuple[str, ...]] = ("rows", "columns")

    @property
    def flops(self) -> int:
        return self.rows * self.columns

    @property
    def bytes(self) -> int:
        return (self.rows * self.columns + self.rows) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"({self.rows},{self.columns}) {self.dtype}"


def _full(problem: Problem, tile: tuple[int, ...]) -> Iterator[OpCase]:
    for columns in (1, 7, tile[0] - 1, tile[0] + 1, 3 * tile[0]):
        yield OpCase((33, max(1, columns)), "randn")
    yield OpCase((64, 512), "huge")
    yield OpCase((1, 1), "randn")


def _tuned(problem: Problem) -> Shape:
    of = cast(RowSumProblem, problem)
    return (min(of.rows, 16), of.columns)


def _tile(parameters: Mapping[str, Value], resources: Mapping[str, int]) -> tuple[int, ...]:
    return (int(parameters.get("UNROLL", 4)),)


CASES = Cases(
    smoke=(5, 65),
    quick=lambda problem: (OpCase((37, 501), "randn", "Q1 "), OpCase((8, 130), "huge", "Q2 ")),
    full=_full,
    tuned=_tuned,
    copied=(37, 501),
    invariant=(21, 113),
    repeated=(64, 257),
    soak=(16, 129),
    between=(3, 70),
    between_large=(300, 300),
    between_distribution="randn",
    sanitized=lambda tile: ((3, 17), (1, 1), (2, tile[0] + 1)),
    tile=_tile,
)


def _scaled(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        return other[0], -4 * plain[0]

    yield Relation((-4 * inputs[0],), compared, "-4 x does not give exactly -4 y")


def _turned(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        return other[0], plain[0].flip(0)

    yield Relation((inputs[0].flip(0),), compared, "the rows in another order do not give the sums in that order")


INVARIANTS = (
    Invariant("G3.scale", "-4 x gives exactly -4 y", "a constant in the arithmetic", _scaled, CASES.invariant),
    Invariant("G3.turn", "rows in another order give sums in that order", "how a row is addressed", _turned, (21, 113)),
)


def _distance(one: Problem, other: Problem) -> float:
    return float(one != other)


def _usual(macros: Mapping[str, str]) -> Problem:
    return RowSumProblem.model_validate({"rows": 64, "columns": 512, "dtype": macros["DTYPE"]})


WORDS = Words(
    baseline="torch.sum",
    axes=("row",),
    distributions={"randn": "standard normal", "huge": "normal, times 1e4"},
    case=lambda shape, macros: f"{shape[0]} rows of {shape[1]} numbers",
    nonfinite="a sum that overflows, or memory that was read before it was written",
    every_row="something that they share",
    some_columns="a part of the output is wrong",
    tail=lambda macros, row: None,
)

OP = Op(
    name="rowsum",
    package=__name__,
    problem=RowSumProblem,
    inputs=lambda problem: (Input("X", problem.dtype, ("rows", "columns")),),
    outputs=lambda problem: (Output("Y", problem.dtype, ("rows",), row=1, slice=1),),
    ordinary="randn",
    cases=CASES,
    invariants=INVARIANTS,
    distance=_distance,
    usual=_usual,
    words=WORDS,
    abi=lambda: HERE / "kernels" / "rowsum" / "abi",
    default_spaces={},
)
