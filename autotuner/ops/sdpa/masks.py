"""Which keys a row of attention sees: for the reference, and as the mask that torch's own attention is given."""

from __future__ import annotations

import torch
from torch import Tensor

from autotuner.ops.sdpa.attention import seen
from autotuner.ops.sdpa.problem import SdpaProblem


def visible(problem: SdpaProblem, lengths: Tensor | None, device: torch.device) -> Tensor | None:
    """Which keys each row sees, of a shape that expands to (batch, heads, seq_q, seq_k); None where each sees all.

    At the bottom right the last row sees all keys there are: as many as the lengths say, where there are lengths.
    """
    if not problem.causal and lengths is None:
        return None
    return seen(problem.seq_q, problem.seq_k, problem.causal, problem.corner, lengths, device)


class Masks:
    """The mask of a problem for torch's scaled_dot_product_attention. It is made once for the lengths that a tensor
    holds, as a model makes it once for all its layers, and is there when a graph is captured."""

    def __init__(self, problem: SdpaProblem) -> None:
        self._problem = problem
        same = problem.corner == "top_left" or problem.seq_q == problem.seq_k
        alone = problem.seq_q == 1 and problem.corner == "bottom_right"  # one row, the last, sees all keys
        self._needed = problem.key_lengths or (problem.causal and not same and not alone)
        self.is_causal = problem.causal and same and not problem.key_lengths
        """What torch's own argument must be beside the mask."""
        self._made_for: tuple[int, int] | None = None
        self._mask: Tensor | None = None
        self._bias: Tensor | None = None

    def of(self, lengths: Tensor | None, q: Tensor) -> Tensor | None:
        """True where a row sees a key; None where torch needs no mask."""
        if not self._needed:
            return None
        made_for = (0, 0) if lengths is None else (lengths.data_ptr(), lengths._version)
        if self._mask is None or self._made_for != made_for or self._mask.device != q.device:
            problem, seen = self._problem, visible(self._problem, lengths, q.device)
            assert seen is not None
            self._mask = seen.expand(problem.batch, 1, problem.seq_q, problem.seq_k).contiguous()
            self._made_for, self._bias = made_for, None
        return self._mask

    def bias(self, q: Tensor) -> Tensor:
        """The mask that `of` gave last as numbers to add, for functions that take no other; rows are padded to a
        multiple of 16 bytes."""
        assert self._mask is not None
        if self._bias is None:
            *sizes, keys = self._mask.shape
            whole = torch.zeros(*sizes, -(-keys // 8) * 8, dtype=q.dtype, device=q.device)
            found = whole[..., :keys].masked_fill_(~self._mask, float("-inf"))
            self._bias = found.expand(-1, q.shape[1], -1, -1)
        return self._bias
