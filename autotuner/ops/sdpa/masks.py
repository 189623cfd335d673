"""Which keys a row of attention sees: for the reference, and as the mask that torch's own attention is given."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.signature import seen
from autotuner.ops.tensors import Tensors


class SdpaInputs(NamedTuple):
    """The inputs of a problem, by name."""

    q: Tensor
    k: Tensor
    v: Tensor
    lengths: Tensor | None
    sinks: Tensor | None
    bias: Tensor | None
    """Or slopes."""

    @property
    def of_heads(self) -> Tensor | None:
        """The sinks, of a shape that expands to (batch, heads, seq_q, 1)."""
        return None if self.sinks is None else self.sinks.view(1, -1, 1, 1)


def given(problem: SdpaProblem, inputs: Tensors) -> SdpaInputs:
    """What a problem's inputs are."""
    q, k, v = inputs[:3]
    more = list(inputs[3:])  # torch's compiler makes a tuple of what a star takes
    lengths = more.pop(0) if problem.key_lengths else None
    sinks = more.pop(0) if problem.sinks != "none" else None
    return SdpaInputs(q, k, v, lengths, sinks, more.pop(0) if problem.bias != "none" else None)


def added(problem: SdpaProblem, of: SdpaInputs) -> Tensor | None:
    """What is added to scaled scores, of a shape that expands to (batch, heads, seq_q, seq_k); None: nothing is."""
    if of.bias is None or problem.bias != "alibi":
        return of.bias
    keys, rows = (torch.arange(size, device=of.bias.device) for size in (problem.seq_k, problem.seq_q))
    ends = problem.seq_k if of.lengths is None else of.lengths.view(-1, 1, 1, 1)
    place = rows.view(-1, 1) + (ends - problem.seq_q if problem.corner == "bottom_right" else 0)
    return of.bias.view(-1, 1, 1) * (keys - place)


def blind(problem: SdpaProblem, of: SdpaInputs) -> Tensor | None:
    """Rows that see no key, of a shape that expands to (batch, heads, seq_q); None where each sees one. A bias of -inf
    hides a key."""
    seen = visible(problem, of.lengths, of.q.device)
    if problem.bias in ("heads", "full") and of.bias is not None:
        shown = of.bias > -torch.inf
        seen = shown if seen is None else seen & shown
    return None if seen is None else ~seen.any(-1)


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
    if problem.bias != "none":
        return True
    return problem.key_lengths or problem.windowed or (problem.causal and problem.offset != 0 and not alone)


def is_causal(problem: SdpaProblem) -> bool:
    """What torch's own argument must be, beside the mask where there is one."""
    of_mask = problem.key_lengths or problem.windowed or problem.bias != "none"
    return problem.causal and problem.offset == 0 and not of_mask


def mask(problem: SdpaProblem, inputs: Tensors) -> Tensor | None:
    """True where a row sees a key, (batch, 1, seq_q, seq_k), dense; None where torch needs no mask. Where there is a
    bias, that, with -inf where a row does not see a key."""
    if not needed(problem):
        return None
    of = given(problem, inputs)
    found, numbers = visible(problem, of.lengths, of.q.device), added(problem, of)
    if numbers is None:
        assert found is not None
        return found.contiguous()
    if found is None and problem.bias != "alibi":
        return numbers
    hidden = numbers.new_zeros(1, dtype=torch.bool) if found is None else ~found
    sizes = torch.broadcast_shapes(hidden.shape, numbers.shape)
    return padded(sizes, of.q).copy_(numbers).masked_fill_(hidden, -torch.inf)


def bias(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask's numbers to add, for functions that take no other: -inf where it hides. Rows are padded to a multiple
    of 16 bytes."""
    return padded(hidden.shape, hidden.new_empty(0, dtype=dtype)).masked_fill_(hidden, -torch.inf)


def padded(sizes: Sequence[int], like: Tensor) -> Tensor:
    """Zeros whose rows begin at multiples of 16 bytes."""
    return like.new_zeros(*sizes[:-1], -(-sizes[-1] // 8) * 8)[..., : sizes[-1]]
