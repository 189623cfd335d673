"""How Q, K and V of a case are drawn and where they lie in memory, and lengths of the keys and sinks."""

import math

import torch
from torch import Tensor

from autotuner.ops.sdpa.masks import past
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import DTYPES, Tensors, normal

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


def _one_hot(
    q: Tensor, k: Tensor, generator: torch.Generator, seen_by: SdpaProblem | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Each query matches a random key, of those that `seen_by` and the lengths leave it: k = sign(randn), q_i = 4
    k_pi(i)."""
    k = torch.where(k >= 0, 1.0, -1.0)
    chosen = torch.randint(k.shape[-2], (*q.shape[:3], 1), generator=generator)
    if seen_by is not None and seen_by.windowed:
        first, last = (_place(seen_by, side) for side in (-seen_by.window_left, seen_by.window_right))
        chosen = first + chosen % (last - first + 1)
    elif seen_by is not None:
        seen = _place(seen_by, 0) + 1
        chosen %= seen if lengths is None else seen.minimum(lengths.view(-1, 1, 1, 1))
    return _matching(q, k, chosen), k


def _matching(q: Tensor, k: Tensor, chosen: Tensor) -> Tensor:
    """Queries of which each is 4 times the key that is chosen for it."""
    of_heads = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return 4 * torch.gather(of_heads, 2, chosen.expand(*q.shape[:3], k.shape[-1]))


def _place(problem: SdpaProblem, apart: int) -> Tensor:
    """Of each row the key so far behind its own place, or the nearest that there is; (seq_q, 1)."""
    found = torch.arange(problem.seq_q) + problem.offset + apart
    return found.clamp(0, problem.seq_k - 1).unsqueeze(1)


def _edges(problem: SdpaProblem, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """As _one_hot, where rows in turn match the last key before the window and the first one after it, which they do
    not see, and the first and the last one in it."""
    k = torch.where(k >= 0, 1.0, -1.0)
    left, right = problem.window_left, problem.window_right
    each = torch.cat([_place(problem, apart) for apart in (-left - 1, right + 1, -left, right)], 1)
    turn = torch.arange(problem.seq_q).unsqueeze(1) % 4
    return _matching(q, k, each.gather(1, turn)), k


TIMES = {"large": (5, 3, 3), "huge": (16, 16, 1), "tiny_v": (1, 1, 1e-6), "big_v": (1, 1, 1000)}
"""What Q, K and V are multiplied by."""
ENORMOUS = {"float32": 3e4, "bfloat16": 3e4, "float16": 4e3}
"""The same of Q and K: scores from 2^28 on, whose products with a scale lose more than a power of two."""
EQUAL = 2e4
OUTLIER = (60.0, 300.0)


def _negative(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The first column makes every score 2^17 smaller: below all that a maximum might begin with but minus infinity."""
    q, k = 256 * q, k.clone()
    q[..., 0], k[..., 0] = 1024.0, -128 * q.shape[-1] ** 0.5
    return q, k


def _with_outlier(x: Tensor, dim: int, generator: torch.Generator) -> Tensor:
    """One row (dimension -2) or column (-1), the same of all heads, times a number of OUTLIER."""
    low, high = OUTLIER
    factors, drawn = torch.ones(x.shape[dim]), float(torch.rand(1, generator=generator))
    factors[torch.randint(x.shape[dim], (1,), generator=generator)] = low + (high - low) * drawn
    return x * (factors.unsqueeze(-1) if dim == -2 else factors)


SLOPE, SINK = 0.15, (10.0, 90.0)
"""What `slopes` adds to a score from key to key, and `sink` to those of the first key, in even and in odd rows."""


def _towards(q: Tensor, k: Tensor, position: Tensor | None) -> tuple[Tensor, Tensor]:
    """The first dimension of Q and K decides: with `position` scores rise along the keys in even rows and fall in odd
    ones; without, they are larger at the first key, by different amounts in even and in odd rows."""
    q, k = q.clone(), k.clone()
    even = torch.arange(q.shape[-2]) % 2 == 0
    if position is not None:
        q[..., 0], k[..., 0] = torch.where(even, 8.0, -8.0), SLOPE * position * q.shape[-1] ** 0.5 / 8
        return q, k
    q[..., 0] = torch.where(even, *SINK)
    k[..., 0], k[..., 0, 0] = 0.0, q.shape[-1] ** 0.5
    return q, k


def inputs(problem: SdpaProblem, distribution: str, seed: int) -> Tensors:
    """Q, K, V of the problem, drawn independently in float32 and rounded to its dtype, and where it has them lengths of
    the keys and sinks; on the CPU. Same seed, same tensors, on whatever device they are used."""
    generator = torch.Generator().manual_seed(seed)

    def draw(heads: int, rows: int) -> Tensor:
        return normal((problem.batch, heads, rows, problem.head_dim), generator)

    q, k, v = draw(problem.heads, problem.seq_q), *(draw(problem.heads_kv, problem.seq_k) for _ in range(2))
    lengths = _lengths(problem, distribution, generator) if problem.key_lengths else None
    if distribution in TIMES:
        q, k, v = (times * x for times, x in zip(TIMES[distribution], (q, k, v), strict=True))
    elif distribution == "one_hot":
        q, k = _one_hot(q, k, generator)
    elif distribution == "edges":
        q, k = _edges(problem, q, k)
    elif distribution in ONE_KEY:
        q, k = _one_hot(q, k, generator, problem, lengths)
        if distribution == "negative":
            q, k = _negative(q, k)
        elif distribution == "enormous":
            q, k = (ENORMOUS[problem.dtype] * x for x in (q, k))
        elif distribution == "outlier_row":
            q = _with_outlier(q, -2, generator)
        else:
            k = _with_outlier(k, -2, generator)
    elif distribution == "equal_enormous":
        q, k = torch.full_like(q, EQUAL), torch.full_like(k, EQUAL)
    elif distribution == "outlier_channel":
        k = _with_outlier(k, -1, generator)
    elif distribution in SHARED:
        q, k, v = (x[each] for x, each in zip((q, k, v), SHARED[distribution], strict=True))
    elif distribution == "zero_q":
        q = torch.zeros_like(q)
    elif distribution == "uniform01":
        q, k, v = (torch.rand(x.shape, generator=generator) for x in (q, k, v))
    elif distribution == "const_v":
        v = torch.full_like(v, 0.75)
    elif distribution in ("slopes", "sink"):
        q, k = _towards(q, k, torch.arange(k.shape[-2]) if distribution == "slopes" else None)
    dtype = DTYPES[problem.dtype]
    placed = laid_out(problem, distribution, q.to(dtype), k.to(dtype), v.to(dtype))
    if lengths is not None:
        if distribution == "ragged":
            for tensor in placed[1:]:  # what a cache holds past its length may be anything
                tensor.masked_fill_(past(problem, lengths), math.nan)
        placed = (*placed, lengths)
    if problem.sinks != "none":
        placed = (*placed, _sinks(problem, distribution, generator))
    return placed if problem.bias == "none" else (*placed, _bias(problem, distribution, generator))


FAR_BIAS = (30.0, -30.0, 5.0, -5.0)
"""Of a row some of which are added, in turn."""
SLOPES = (0.5, 0.003, 0.06, 2.0)
"""Of the heads in turn."""


def _bias(problem: SdpaProblem, distribution: str, generator: torch.Generator) -> Tensor:
    """Slopes, or numbers whose rows begin at multiples of 16 bytes, with NaN between them. With `hiding` some are -inf
    or the least that there is, and some rows are all of one or the other."""
    if problem.bias == "alibi":
        return torch.tensor([SLOPES[head % len(SLOPES)] for head in range(problem.heads)])
    sizes = (problem.batch if problem.bias == "full" else 1, problem.heads, problem.seq_q, problem.seq_k)
    drawn = torch.randn(sizes, generator=generator)
    if distribution == "hiding":
        chosen = torch.randint(8, sizes, generator=generator)
        for place, value in enumerate((-math.inf, torch.finfo(DTYPES[problem.dtype]).min, *FAR_BIAS)):
            drawn[chosen == place] = value
        drawn[:, :, 3::7] = -math.inf
        if not problem.lse:  # of such rows no float has the log-sum-exp
            drawn[:, :, 5::7] = torch.finfo(DTYPES[problem.dtype]).min
    if distribution == "shared":  # by all heads and rows
        drawn = drawn[:, :1, :1]
    placed = padded_apart(drawn.shape, DTYPES[problem.dtype])
    return placed.copy_(drawn).expand(sizes)


FAR_SINKS = (25.0, -25.0, -math.inf, 6.0, -1000.0)
"""Of the heads in turn: far above and far below all scores, and none at all."""


def _sinks(problem: SdpaProblem, distribution: str, generator: torch.Generator) -> Tensor:
    drawn = 2 * torch.randn(problem.heads, generator=generator)
    if distribution == "far_sinks":
        drawn = torch.tensor([FAR_SINKS[head % len(FAR_SINKS)] for head in range(problem.heads)])
    return drawn.to(DTYPES[problem.dtype] if problem.sinks == "own" else torch.float32)


FULL_LENGTHS = ("randn", "gaps", "gaps_in_v", *SHARED)
"""The distributions with which every length is that of the tensor: what is timed is drawn so."""
ONE_KEY = ("edges", "enormous", "negative", "outlier_row", "outlier_key")
"""And those that choose a key that each row sees, where its place depends on the length: others' scores may tie, and
where they are large their roundings would decide."""


def _lengths(problem: SdpaProblem, distribution: str, generator: torch.Generator) -> Tensor:
    """Of each batch a number of keys: at least 1, and with `ragged` none, 1 and all among them."""
    by_length = problem.windowed or problem.corner == "bottom_right"
    if distribution in (*FULL_LENGTHS, *(ONE_KEY if by_length else ())):
        return torch.full((problem.batch,), problem.seq_k, dtype=torch.int32)
    drawn = torch.randint(1, problem.seq_k + 1, (problem.batch,), generator=generator, dtype=torch.int32)
    some = torch.tensor([problem.seq_k, 0, 1], dtype=torch.int32)[: problem.batch]
    return torch.cat((some, drawn[len(some) :])) if distribution == "ragged" else drawn
