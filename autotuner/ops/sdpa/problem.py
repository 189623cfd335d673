"""Problem: what is to be computed - an op, its shape, element type and mask. No tensors here (see attention.py)."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, PositiveInt

from autotuner.values.model import Model
from autotuner.values.variant import Value

Dtype = Literal["float32", "bfloat16", "float16"]
Distribution = Literal["randn", "large", "huge", "one_hot", "tiny_v", "big_v", "zero_q", "uniform01", "const_v"]
"""How inputs are drawn; attention.py draws them."""

ITEM_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


class Problem(Model):
    """One attention forward: Q, O are (batch, heads, seq_q, head_dim), K, V are (batch, heads, seq_k, head_dim)."""

    op: Literal["sdpa"] = "sdpa"
    batch: PositiveInt
    heads: PositiveInt
    seq_q: PositiveInt
    seq_k: PositiveInt
    head_dim: PositiveInt
    dtype: Dtype
    causal: bool = Field(default=False, description="row i sees keys j <= i (aligned at the top left)")

    @property
    def scale(self) -> float:
        """The softmax scale, 1 / sqrt(head_dim)."""
        return 1 / math.sqrt(self.head_dim)

    @property
    def flops(self) -> int:
        """Floating-point operations of the two products; with a causal mask only visible scores count."""
        if not self.causal:
            visible = self.seq_q * self.seq_k
        else:
            visible = sum(min(row + 1, self.seq_k) for row in range(self.seq_q))
        return 4 * self.batch * self.heads * visible * self.head_dim

    @property
    def bytes(self) -> int:
        """The fewest bytes to move: Q, K, V read once, O written once."""
        rows = 2 * self.seq_q + 2 * self.seq_k
        return self.batch * self.heads * rows * self.head_dim * ITEM_BYTES[self.dtype]

    def facts(self) -> dict[str, Value | bool]:
        """What the constraints of a space may say about the problem."""
        return {
            "BATCH": self.batch,
            "HEADS": self.heads,
            "SEQ_Q": self.seq_q,
            "SEQ_K": self.seq_k,
            "HEAD_DIM": self.head_dim,
            "DTYPE": self.dtype,
            "CAUSAL": self.causal,
        }

    def __str__(self) -> str:
        lengths = f"{self.seq_q}" if self.seq_q == self.seq_k else f"{self.seq_q}x{self.seq_k}"
        mask = "causal" if self.causal else "full"
        return f"({self.batch},{self.heads},{lengths},{self.head_dim}) {self.dtype} {mask}"
