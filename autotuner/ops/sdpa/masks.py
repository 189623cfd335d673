"""Which keys a row of attention sees: for the reference, and as the mask that torch's own attention is given."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.signature import seen
from autotuner.ops.tensors import Tensors


class Given(NamedTuple):
    """The inputs of a problem, by name."""

    q: Tensor
    k: Tensor
    v: Tensor
    lengths: Tensor | None
    sinks: Tensor | None

    @property
    def of_heads(self) -> Tensor | None:
        """The sinks, of a shape that expands to (batch, heads, seq_q, 1)."""
        return None if self.sinks is None else self.sinks.view(1, -1, 1, 1)


def given(problem: SdpaProblem, inputs: Tensors) -> Given:
    """What a problem's inputs are."""
    q, k, v, *more = inputs
    lengths = more.pop(0) if problem.key_lengths else None
    return Given(q, k, v, lengths, more.pop(0) if problem.sinks != "none" else None)


def visible(problem: SdpaProblem, lengths: Tensor | None, device: torch.device) -> Tensor | None:
    """Which keys each row sees, (batch, 1, seq_q, seq_k); None where each sees all.

    At the bottom right the last row sees all keys there are: as many as the lengths say, where there are lengths.
    """
    window = (problem.window_left, problem.window_right)
    if not problem.causal and not problem.windowed and lengths is None:
        return None
    found = seen(problem.seq_q, problem.seq_k, problem.causal, problem.corner, lengths, device, window)
    return found.expand(problem.batch, 1, problem.seq_q, problem.seq_k)


def past(problem: SdpaProblem, lengths: Tensor) -> Tensor:
    """Which rows of K and V lie past their length; (batch, 1, seq_k, 1)."""
    return (torch.arange(problem.seq_k, device=lengths.device) >= lengths.unsqueeze(1)).view(problem.batch, 1, -1, 1)


def needed(problem: SdpaProblem) -> bool:
    """Whether torch's scaled_dot_product_attention needs a mask tensor to say the same."""
    alone = problem.seq_q == 1 and problem.corner == "bottom_right"  # one row, the last, sees all keys
    return problem.key_lengths or problem.windowed or (problem.causal and problem.offset != 0 and not alone)


def is_causal(problem: SdpaProblem) -> bool:
    """What torch's own argument must be, beside the mask where there is one."""
    return problem.causal and problem.offset == 0 and not (problem.key_lengths or problem.windowed)


def mask(problem: SdpaProblem, inputs: Tensors) -> Tensor | None:
    """True where a row sees a key, (batch, 1, seq_q, seq_k), dense; None where torch needs no mask."""
    if not needed(problem):
        return None
    found = visible(problem, inputs[3] if problem.key_lengths else None, inputs[0].device)
    assert found is not None
    return found.contiguous()


def bias(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask's numbers to add, for functions that take no other: -inf where it hides. Rows are padded to a multiple
    of 16 bytes."""
    *sizes, keys = hidden.shape
    whole = torch.zeros(*sizes, -(-keys // 8) * 8, dtype=dtype, device=hidden.device)
    return whole[..., :keys].masked_fill_(hidden, -torch.inf)
