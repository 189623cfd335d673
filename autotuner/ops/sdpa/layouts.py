"""Where the tensors of an attention problem lie in memory."""

import torch
from torch import Tensor

from autotuner.ops.sdpa.problem import SdpaProblem

# Units of 16 bytes after a row, rows after a length and heads after a batch that no tensor has, in each tensor another
# number; and whether a batch is heads of rows or rows of heads.
Q_GAPS, K_GAPS, V_GAPS, O_GAPS = (1, 3, 1, True), (3, 1, 0, False), (2, 2, 2, True), (5, 0, 1, False)

ALL, ONE, ONE_HEAD = (slice(None),), (slice(1),), (slice(None), slice(1))
SHARED = {"expanded": (ALL, ONE, ONE), "one_head": (ALL, ONE_HEAD, ONE_HEAD), "one_query": (ONE, ALL, ALL)}
"""By distribution: what of Q, K and V lies in memory, all batches or heads of each sharing it."""


def rows_first(x: Tensor) -> Tensor:
    """The same numbers, (batch, heads, length, head_dim), as a view of a dense (batch, length, heads, head_dim)."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def packed(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same numbers in one dense (batch, length, all heads, head_dim)."""
    heads = [x.shape[1] for x in tensors]
    whole = torch.cat([x.transpose(1, 2) for x in tensors], 2)
    return tuple(part.transpose(1, 2) for part in whole.split(heads, 2))


def apart(like: Tensor, after_row: int, after_rows: int, after_heads: int, by_heads: bool) -> Tensor:
    """Room for such a tensor with gaps: units of 16 bytes after each row, rows after each length, heads after each
    batch. All of it is NaN."""
    batch, heads, length, head_dim = like.shape
    row = head_dim + after_row * 16 // like.element_size()
    outer, inner = (
        (heads + after_heads, length + after_rows) if by_heads else (length + after_rows, heads + after_heads)
    )
    whole = torch.full((batch, outer, inner, row), torch.nan, dtype=like.dtype, device=like.device)
    placed = whole if by_heads else whole.transpose(1, 2)
    return placed[:, :heads, :length, :head_dim]


def padded_apart(sizes: torch.Size, dtype: torch.dtype) -> Tensor:
    """Room for such a tensor whose rows begin at multiples of 16 bytes, NaN between them."""
    unit = 16 // dtype.itemsize
    return torch.full((*sizes[:-1], -(-sizes[-1] // unit) * unit), torch.nan, dtype=dtype)[..., : sizes[-1]]


def laid_out(problem: SdpaProblem, distribution: str, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Q, K and V where the problem's layout has them, or, for layouts other than the dense one, where the distribution
    does. What a distribution has SHARED is as large as its share."""
    if distribution in SHARED:
        heads = (problem.heads, problem.heads_kv, problem.heads_kv)
        placed = (x if problem.layout == "bhsd" else rows_first(x) for x in (q, k, v))
        return tuple(x.expand(problem.batch, n, -1, -1) for x, n in zip(placed, heads, strict=True))
    if problem.layout == "bhsd":
        return q, k, v
    if distribution == "gaps":
        pairs = zip((q, k, v), (Q_GAPS, K_GAPS, V_GAPS), strict=True)
        return tuple(apart(x, *gaps).copy_(x) for x, gaps in pairs)
    if distribution == "gaps_in_v":
        return rows_first(q), rows_first(k), apart(v, *V_GAPS).copy_(v)
    if problem.layout == "bshd":
        return rows_first(q), rows_first(k), rows_first(v)
    return packed(q, k, v) if problem.seq_q == problem.seq_k else (rows_first(q), *packed(k, v))


def overlapping(problem: SdpaProblem, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of these shapes, with numbers of these, in one piece of memory: each begins a row behind the next one,
    and has heads of rows in the dense layout, else rows of heads."""
    memory = torch.cat([x.flatten() for x in tensors]).repeat(len(tensors))
    found = []
    for place, x in enumerate(reversed(tensors)):
        batch, heads, length, head_dim = x.shape
        dense = problem.layout == "bhsd"
        sizes = (batch, heads, length, head_dim) if dense else (batch, length, heads, head_dim)
        first = place * (head_dim if dense else heads * head_dim)
        view = memory[first : first + x.numel()].view(sizes)
        found.append(view if dense else view.transpose(1, 2))
    return tuple(reversed(found))


def output_like(problem: SdpaProblem, q: Tensor) -> Tensor:
    """O as SDPA returns it: dense where Q is, else a view of a dense (batch, length, heads, head_dim). Where even Q has
    gaps after its rows, O has others."""
    if problem.layout == "bhsd":
        return torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if q.stride(2) % q.shape[3] or q.stride(1) % q.shape[3]:
        return apart(q, *O_GAPS)
    batch, heads, length, head_dim = q.shape
    return torch.empty((batch, length, heads, head_dim), dtype=q.dtype, device=q.device).transpose(1, 2)
