"""Why an output is wrong, by experiments after a rejection: what is found is said beside it, and decides nothing.

Numbers of another type, and lengths that are no multiple of something, look in the output alone like something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from autotuner.ops.tensors import DTYPES, Tensors
from autotuner.values.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.gate.cases import Case, Matrix
    from autotuner.gate.tolerance import Truth

MULTIPLES = (2, 16, 128)
"""Lengths are tried that are multiples of these, and of nothing larger."""
CLOSE = 0.02
"""Relative: nearer than this an output of another type is the right one."""

Judge = Callable[["Case"], bool]
"""Whether the variant is right on a case like the one that failed."""


def of_type(outputs: Tensors, right: Truth) -> str | None:
    """That an output holds numbers of another type, or was rounded to one on its way."""
    for output, expected in zip(outputs, right.outputs, strict=True):
        found = _stored_as(output, expected.reference) or _rounded_to(output)
        if found is not None:
            return found
    return None


def _stored_as(output: Tensor, reference: Tensor) -> str | None:
    """The bits of the output, taken for numbers of another type, are the right ones: from its beginning, from that of
    each row, or each in the place of its own."""
    rows, columns, due = output.reshape(-1, output.shape[-1]), output.shape[-1], reference.flatten()
    for name, dtype in DTYPES.items():
        if dtype == output.dtype or dtype.itemsize > output.dtype.itemsize:
            continue
        numbers = rows.view(dtype)
        for found in (numbers.flatten()[: len(due)], numbers[:, :columns], numbers[:, :: numbers.shape[1] // columns]):
            if bool(((found.flatten().double() - due).abs() <= CLOSE * due.abs().max()).all()):
                own = str(output.dtype).removeprefix("torch.")
                return f"the output holds the right numbers as {name}, where its type is {own}"
    return None


def _rounded_to(output: Tensor) -> str | None:
    """Every number of a float32 output is one of a smaller type."""
    if output.dtype != torch.float32 or not bool(output.isfinite().all()):
        return None
    for name in ("bfloat16", "float16"):  # the coarser first: few of its numbers are none of the other
        if bool((output == output.to(DTYPES[name]).float()).all()):
            return f"every number of the output is one of {name}: it was rounded to that on its way"
    return None


def of_lengths(matrix: Matrix, case: Case, is_right: Judge) -> str | None:
    """That the variant is right where lengths are multiples of a number that those of the case are not."""
    problem = case.problem
    for multiple in MULTIPLES:
        names = [name for name in problem.LENGTHS if getattr(problem, name) % multiple]
        if not names or not _is_right_at(matrix, case, names, multiple, is_right):
            continue
        alone = [name for name in names if _is_right_at(matrix, case, [name], multiple, is_right)]
        which = " and ".join(alone[:1] if len(alone) == 1 else names)
        what = "even" if multiple == 2 else f"a multiple of {multiple}"
        return (
            f"it is right on the same inputs with {which} {what}: a tail that is dropped, or read as if it were whole"
        )
    return None


def _is_right_at(matrix: Matrix, case: Case, names: list[str], multiple: int, is_right: Judge) -> bool:
    counts = {name: -(-getattr(case.problem, name) // multiple) | 1 for name in names}
    lengths = {name: count * multiple for name, count in counts.items()}  # multiples that are none of twice as much
    problem: Problem = case.problem.model_copy(update=lengths)
    other = matrix.case(problem.short_shape, case.distribution, "diagnosis ")
    return other.problem == problem and is_right(other)
