"""How far two problems of rmsnorm are apart, counted in doublings and changes."""

from __future__ import annotations

import math
from typing import cast

from autotuner.ops.rmsnorm.problem import RmsNormProblem
from autotuner.values.problem import ITEM_BYTES, Problem

TOKENS, HIDDEN_SIZE = 0.5, 1.0
"""What a doubling counts: of the rows, which are only more of the same work until they fill the machine; of the row,
which changes what fits into registers and caches."""
DTYPE, DTYPE_BYTES = 0.5, 2.0
"""What a change of the element type counts; and each doubling of its size, on top."""


def distance(one: Problem, other: Problem) -> float:
    """0 for the same problem. eps is a number that no kernel is chosen by."""
    a, b = cast(RmsNormProblem, one), cast(RmsNormProblem, other)
    return (
        TOKENS * _doublings(a.tokens, b.tokens)
        + HIDDEN_SIZE * _doublings(a.hidden_size, b.hidden_size)
        + DTYPE * (a.dtype != b.dtype)
        + DTYPE_BYTES * _doublings(ITEM_BYTES[a.dtype], ITEM_BYTES[b.dtype])
    )


def _doublings(one: int, other: int) -> float:
    return abs(math.log2(one / other))
