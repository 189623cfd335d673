"""The problem of the op sdpa: the sizes of the tensors, their element type and the mask."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from autotuner.values.problem import ITEM_BYTES, Dtype, Problem


class SdpaProblem(Problem):
    """One attention forward: Q, O are (batch, heads, seq_q, head_dim), K, V are (batch, heads, seq_k, head_dim)."""

    op: Literal["sdpa"] = "sdpa"
    batch: PositiveInt
    heads: PositiveInt
    seq_q: PositiveInt
    seq_k: PositiveInt
    head_dim: PositiveInt
    dtype: Dtype
    causal: bool = Field(default=False, description="row i sees keys j <= i (aligned at the top left)")

    DIMS: ClassVar[tuple[str, ...]] = ("batch", "heads", "seq_q", "seq_k")
    COMPILED: ClassVar[tuple[str, ...]] = ("head_dim", "causal")
    LENGTHS: ClassVar[tuple[str, ...]] = ("seq_q", "seq_k")

    @property
    def scale(self) -> float:
        """The softmax scale, 1 / sqrt(head_dim)."""
        return 1 / math.sqrt(self.head_dim)

    @property
    def scalars(self) -> tuple[float, ...]:
        return (self.scale,)

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

    def __str__(self) -> str:
        lengths = f"{self.seq_q}" if self.seq_q == self.seq_k else f"{self.seq_q}x{self.seq_k}"
        mask = "causal" if self.causal else "full"
        return f"({self.batch},{self.heads},{lengths},{self.head_dim}) {self.dtype} {mask}"
