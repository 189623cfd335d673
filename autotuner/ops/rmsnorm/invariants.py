"""What must hold of rmsnorm exactly, without a reference (G3).

torch is imported where it is used: what reads a report wants the words alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotuner.ops.op import Invariant, Relation
from autotuner.ops.rmsnorm.cases import INVARIANT
from autotuner.values.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.ops.tensors import Tensors


def scale_w(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """-4 W gives exactly -4 Y: only sign and exponent change, but for outputs so small that they lose digits."""
    import torch

    x, w = inputs

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        got, want = other[0], -4 * plain[0]
        numbers = torch.finfo(w.dtype)
        close = (got - want).abs() <= 4 * numbers.smallest_normal * numbers.eps
        return torch.where((want.abs() <= 4 * numbers.tiny) & close, want, got), want

    yield Relation((x, -4 * w), compared, "-4 W does not give exactly -4 Y")


def permute(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Permuting the rows of X permutes those of Y, nothing else."""
    import torch

    x, w = inputs
    order = torch.randperm(x.shape[0], generator=torch.Generator().manual_seed(seed))

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        return other[0], plain[0][order]

    yield Relation((x[order], w), compared, "permuting the rows of X does not permute those of Y")


def other_rows(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """What every second row holds does not reach the others."""
    x, w = inputs
    changed = x.clone()
    changed[1::2] *= 100

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        return other[0][::2], plain[0][::2]

    yield Relation((changed, w), compared, "changing every second row changes the rows between")


def equal(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """A row of equal numbers under W = 1 gives equal numbers: no column is computed in a way of its own."""
    import torch

    x, w = inputs

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        return other[0], other[0][:, :1].expand_as(other[0])

    same = x[:, :1].expand_as(x).contiguous()
    yield Relation((same, torch.ones_like(w)), compared, "a row of equal numbers gives numbers that differ")


def spread(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """NaN in one number of X or W comes out in the row or column that it belongs to, infinity in X in its place at
    least; no other row changes."""
    import math

    import torch

    from autotuner.ops.tensors import where_lost

    x, w = inputs
    generator = torch.Generator().manual_seed(seed)
    row, column = (int(torch.randint(size, (1,), generator=generator)) for size in x.shape)

    def planted(into: Tensor, value: float, *at: int) -> Tensor:
        other = into.clone()
        other[at] = value
        return other

    of_row, of_column = (torch.zeros_like(x, dtype=torch.bool) for _ in range(2))
    of_row[row], of_column[:, column] = True, True
    detail = "{} in one number of {} does not come out where it must, or changes another row"
    for value, name, changed, due, touched in (
        (math.nan, "X", (planted(x, math.nan, row, column), w), of_row, of_row),
        (math.inf, "X", (planted(x, math.inf, row, column), w), of_row & of_column, of_row),
        (math.nan, "W", (x, planted(w, math.nan, column)), of_column, of_column),
    ):
        yield Relation(changed, where_lost(due, touched), detail.format(value, name))


def overlap(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """W may lie within X: the bits of Y are those of copies."""
    import torch

    from autotuner.ops.tensors import first_outputs

    x, w = inputs
    memory = torch.cat((x.flatten(), w))
    for first in (0, 8):  # aligned to 16 bytes
        within = memory[: x.numel()].view(x.shape), memory[first : first + w.numel()]
        copies = within[0].clone(), within[1].clone()
        yield Relation(within, first_outputs, "W that lies within X gives another result than copies", before=copies)


INVARIANTS = (
    Invariant(
        "G3.scale_w",
        "-4 W gives exactly -4 Y",
        "a constant in the arithmetic (a clamp, something added), or a result that does not come from W",
        scale_w,
        INVARIANT,
    ),
    Invariant(
        "G3.permute",
        "permuting the rows of X permutes the output, nothing else",
        "the addressing of rows, or a sum whose order depends on the row's place",
        permute,
        INVARIANT,
    ),
    Invariant(
        "G3.other_rows",
        "what every second row holds does not reach the others",
        "a sum that is not cleared between rows, or that is shared by several",
        other_rows,
        INVARIANT,
    ),
    Invariant(
        "G3.equal",
        "a row of equal numbers under W = 1 gives equal numbers",
        "a part of the row, such as its tail, is rounded differently or takes another sum",
        equal,
        INVARIANT,
    ),
    Invariant(
        "G3.overlap",
        "W may lie within X",
        "an input is written to, or what is read of one is taken for the other's",
        overlap,
        INVARIANT,
    ),
    Invariant(
        "G3.spread",
        "a number that is NaN or infinite comes out where the definition has it, and changes no other row",
        "a clamp that drops NaN, or numbers that are cleaned before they are used",
        spread,
        INVARIANT,
    ),
)
"""In order of cost."""
