"""How far two attention problems are apart, counted in doublings and changes as a person who tunes would."""

from __future__ import annotations

import math
from typing import cast

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.problem import ITEM_BYTES, Problem

LENGTH, ROWS, HEAD_DIM = 0.5, 0.5, 2.0
"""What a doubling counts: of one of the two lengths; of batch times heads, which are only more of the same work; of the
head dimension, which changes what fits into registers and on-chip memory."""
DTYPE, DTYPE_BYTES, MASK = 0.5, 2.0, 1.0
"""What a change counts: of the element type; and each doubling of its size, on top; of the mask."""
CORNER, KEY_LENGTHS, LAYOUT, LSE = 0.25, 0.5, 0.5, 0.25
"""And these: of the corner; of whether lengths are read; of the layout; of whether there is a second output."""
GROUP = 0.5
"""What a doubling of the heads that share K and V counts."""


def distance(one: Problem, other: Problem) -> float:
    """0 for the same problem."""
    a, b = cast(SdpaProblem, one), cast(SdpaProblem, other)
    return (
        LENGTH * (_doublings(a.seq_q, b.seq_q) + _doublings(a.seq_k, b.seq_k))
        + ROWS * _doublings(a.batch * a.heads, b.batch * b.heads)
        + HEAD_DIM * _doublings(a.head_dim, b.head_dim)
        + DTYPE * (a.dtype != b.dtype)
        + DTYPE_BYTES * _doublings(ITEM_BYTES[a.dtype], ITEM_BYTES[b.dtype])
        + MASK * (a.causal != b.causal)
        + CORNER * (a.corner != b.corner)
        + KEY_LENGTHS * (a.key_lengths != b.key_lengths)
        + LAYOUT * (a.layout != b.layout)
        + LSE * (a.lse != b.lse)
        + GROUP * _doublings(a.group, b.group)
    )


def _doublings(one: int, other: int) -> float:
    return abs(math.log2(one / other))
