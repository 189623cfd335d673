"""Attention from FP8 in tensors: float64 reference, an emulation of products as Hopper has them, other people's."""

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from autotuner.ops.op import Baseline
from autotuner.ops.sdpa import distributions, tensors as attention
from autotuner.ops.sdpa.distributions import SHARED, laid_out
from autotuner.ops.sdpa.masks import past, visible
from autotuner.ops.sdpa.tensors import SdpaSymmetry
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.sdpa_fp8.quantising import LARGEST, of_heads, quantised, stored
from autotuner.ops.tensors import DTYPES, Tensors, shifted
from autotuner.values.problem import Problem

OFFSET = 5.0
"""The largest probability of a row is 2^OFFSET before it is rounded: the small ones keep digits, and there is room for
larger ones, up to 448, before the maximum must change."""
SCALES, LEAST_OFFSET = 8, 3.0
"""Of `any_scale`."""
TILE = 128
"""Keys whose probabilities are added up by a product."""
DEPTH, FRACTION = 32, 13
"""Terms that a product of FP8 on Hopper's tensor cores adds at a time, and the binary digits behind the largest one's
first that are kept of each, and of the sum so far; the rest is cut off."""


def dequantised(problem: SdpaFp8Problem, given: Tensors, dtype: torch.dtype = torch.float64) -> Tensors:
    """What Q, K and V stand for, with 0 past the lengths, and the lengths where there are any: the inputs of
    attention."""
    qkv, descales, lengths = given[:3], given[3:6], given[6:]
    q, k, v = (
        x.to(torch.float64) * of_heads(descale.double(), x.shape[1]) for x, descale in zip(qkv, descales, strict=True)
    )
    for each in lengths:
        k, v = (x.masked_fill(past(problem, each), 0) for x in (k, v))
    return (q.to(dtype), k.to(dtype), v.to(dtype), *lengths)


def reference(problem: SdpaFp8Problem, given: Tensors) -> Tensors:
    """Attention of exactly what the inputs stand for, in float64. What they lost when they were quantised is no error
    of the op."""
    return attention.reference(problem, dequantised(problem, given))


class _Multiplied(NamedTuple):
    """What the products are of."""

    q: Tensor
    k: Tensor
    v: Tensor
    """In float32, K and V of every head of Q, 0 past the lengths."""
    scale: Tensor
    """That makes powers of two of scores; (batch, heads, 1, 1)."""
    of_v: Tensor
    seen: Tensor | None
    """(batch, 1, seq_q, seq_k)."""


def _multiplied(problem: SdpaFp8Problem, given: Tensors) -> _Multiplied:
    q, k, v, q_descale, k_descale, v_descale, *lengths = given
    q, k, v = (x.float() for x in (q, k, v))
    for each in lengths:
        k, v = (x.masked_fill(past(problem, each), 0) for x in (k, v))
    k, v = (x.repeat_interleave(problem.group, 1) for x in (k, v))
    scale = of_heads(q_descale.double() * k_descale.double() * problem.scale * math.log2(math.e), problem.heads)
    seen = visible(problem, lengths[0] if lengths else None, q.device)
    if seen is not None:
        seen = seen.expand(problem.batch, 1, problem.seq_q, problem.seq_k)
    return _Multiplied(q, k, v, scale, of_heads(v_descale.double(), problem.heads), seen)


def emulation(problem: SdpaFp8Problem, given: Tensors) -> Tensors:
    """Both products with the sums of Hopper's tensor cores, the probabilities of a row times 2^OFFSET rounded to e4m3
    and divided by their own sum; in float64."""
    if problem.fp8_cache:
        return _emulation_of_cache(problem, given)
    of = _multiplied(problem, given)
    o = torch.empty(*of.q.shape, dtype=torch.float64, device=of.q.device)
    lse = o.new_empty(o.shape[:-1])
    for rows in attention.pieces(problem, of.q.device.type):
        seen = None if of.seen is None else of.seen[:, :, rows]
        scores = _scores(of.q[:, :, rows], of.k, of.scale, seen)
        weights, shift = _weights(scores, OFFSET)
        o[:, :, rows] = _weighted(weights, of.v)
        if problem.lse:
            lse[:, :, rows] = _log_sum(weights, shift)
    return ((o * of.of_v).to(DTYPES[problem.dtype]).double(), *[lse] * problem.lse)


def _scores(q: Tensor, k: Tensor, scale: Tensor, seen: Tensor | None) -> Tensor:
    scores = hopper_product(q, k.transpose(-1, -2)) * scale
    return scores if seen is None else scores.masked_fill_(~seen, -math.inf)


def _weights(scores: Tensor, offset: float) -> tuple[Tensor, Tensor]:
    """Rounded probabilities, of which a row's largest is 2^offset before that, and what was subtracted for it."""
    shift = scores.amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).min) - offset
    return stored(torch.exp2(scores - shift)).float(), shift


def _weighted(weights: Tensor, v: Tensor) -> Tensor:
    return hopper_product(weights, v) / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)


def _log_sum(weights: Tensor, shift: Tensor) -> Tensor:
    """The log-sum-exps, from sums that lose in each tile what its products do."""
    tiles = [hopper_product(each, torch.ones_like(each[..., :1, :]).mT) for each in weights.split(TILE, -1)]
    return (shift + torch.log2(torch.stack(tiles).sum(0)))[..., 0] * math.log(2)


def any_scale(
    problem: SdpaFp8Problem, given: Tensors, exact: Tensors
) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
    """The emulation whose rows are scaled by whatever their first keys have it: the one that weighs most is rounded as
    the others are. How far, the scale's place between two powers of two decides: SCALES of them, at the least offset
    that IMPL = wgmma_fp8 has, in the rows where rounding counts most; log-sum-exps of the head of the first."""
    if problem.fp8_cache:
        return
    of = _multiplied(problem, given)
    rows = _rounded_most(problem, of, exact[0])
    batch, head, query = rows.unbind(1)
    seen = None if of.seen is None else of.seen[batch, 0, query].unsqueeze(1)
    scales, of_v = (x.expand(problem.batch, problem.heads, 1, 1)[batch, head] for x in (of.scale, of.of_v))
    scores = _scores(of.q[batch, head, query].unsqueeze(1), of.k[batch, head], scales, seen)
    for place in range(SCALES):
        weights, _ = _weights(scores, LEAST_OFFSET + place / SCALES)
        o = _weighted(weights, of.v[batch, head]) * of_v
        yield 0, rows.unbind(1), o[:, 0].to(DTYPES[problem.dtype]).double()
    if problem.lse:  # of all rows of one head
        one = (batch[:1], head[:1])
        scores = _scores(of.q[one], of.k[one], scales[:1], None if of.seen is None else of.seen[batch[:1], 0])
        for place in range(SCALES):
            yield 1, one, _log_sum(*_weights(scores, LEAST_OFFSET + place / SCALES))


def _rounded_most(problem: SdpaFp8Problem, of: _Multiplied, exact: Tensor) -> Tensor:
    """Some rows whose outputs move most, by their size and beside the row's largest, where each weight is off by a
    share of its own: (rows, 3), batch, head and query of each."""
    v = of.v * of.of_v.float()

    def moved(rows: slice) -> Tensor:
        scores = of.q[:, :, rows] @ of.k.transpose(-1, -2) * of.scale.float()
        if of.seen is not None:
            scores.masked_fill_(~of.seen[:, :, rows], -math.inf)
        squares = torch.softmax(scores * math.log(2), -1).nan_to_num(0).square()
        o = exact[:, :, rows].float()
        return (squares @ v.square() - 2 * o * (squares @ v) + o.square() * squares.sum(-1, keepdim=True)).amax(-1)

    moves = torch.cat([moved(rows) for rows in attention.pieces(problem, of.q.device.type)], 2).clamp_min(0).sqrt()
    beside = moves / exact.abs().amax(-1).clamp_min(torch.finfo(torch.float64).tiny)
    found = torch.cat([each.flatten().topk(min(attention.ROWS, moves.numel())).indices for each in (moves, beside)])
    return torch.stack(
        (found // (problem.heads * problem.seq_q), found // problem.seq_q % problem.heads, found % problem.seq_q), 1
    )


def _emulation_of_cache(problem: SdpaFp8Problem, given: Tensors) -> Tensors:
    """Attention in 16 bits of what is stored: descales are of scores and of O, which are not rounded between."""
    dtype = DTYPES[problem.dtype]
    q, k, v, q_descale, k_descale, v_descale, *lengths = given
    factor, of_v = (of_heads(each.double(), problem.heads) for each in (q_descale * k_descale, v_descale))
    plain = problem.model_copy(update={"dtype": "bfloat16"})
    o, *lse = attention.emulation(plain, (q.double() * factor, k.to(dtype), v.to(dtype), *lengths))
    return ((o * of_v).to(dtype).double(), *lse)


def hopper_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b as the tensor cores add it up, with what cutting off costs in the mean: half a last digit of each term."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1], device=a.device)
    for x, y in zip(a.split(DEPTH, -1), b.split(DEPTH, -2), strict=True):
        terms = x @ y
        _, exponent = torch.frexp(torch.maximum(total.abs(), terms.abs()))
        digit = torch.ldexp(torch.ones_like(total), exponent - 1 - FRACTION)
        total = torch.trunc((total + terms - 0.5 * digit * (x.sign() @ y.sign())) / digit) * digit
    return total.double()


def outputs(problem: SdpaFp8Problem, given: Tensors) -> Tensors:
    """Empty ones, which lie as attention has them beside such a Q."""
    q = given[0]
    like = torch.empty_strided(q.shape, q.stride(), dtype=DTYPES[problem.dtype], device=q.device)
    return attention.outputs(problem, (like,))


def fresh(problem: SdpaFp8Problem, given: Tensors, seed: int) -> Tensors:
    """Other Q, K and V, drawn as these; the same descales and lengths."""
    moved = shifted(tuple(x.view(torch.uint8) if x.itemsize == 1 else x for x in given[:3]), seed)
    return (*(x.view(was.dtype) for x, was in zip(moved, given, strict=False)), *given[3:])


class _Symmetry(SdpaSymmetry):
    """Attention's: batches, heads and signs. The descales go with their heads."""

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        super().inputs((*plain[:3], *plain[6:]), (*into[:3], *into[6:]))
        for descale, other in zip(plain[3:6], into[3:6], strict=True):
            other.copy_(self._permuted(descale, self._heads_kv))

    def _move(self, plain: Tensor, heads: Tensor, signs: Tensor, into: Tensor) -> None:
        if plain.dtype != torch.float8_e4m3fn:
            super()._move(plain, heads, signs, into)
        else:
            permuted, bits = self._permuted(plain.view(torch.uint8), heads), torch.where(signs < 0, 0x80, 0)
            torch.bitwise_xor(permuted, bits.to(torch.uint8), out=into.view(torch.uint8))


symmetry = _Symmetry


def reordered(
    problem: SdpaFp8Problem, given: Tensors, exact: Tensors
) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
    """None: it is the roundings that count, not the order of sums."""
    return iter(())


def _widened(backend: str, *devices: str) -> Baseline:
    """torch's attention of what Q, K and V stand for, which is made outside the clock: in 16 bits, or for log-sum-exps,
    which are off by more than their tolerance where inputs are rounded, by `math` in float32."""

    def forward(problem: Problem) -> Callable[..., Tensors]:
        inner = attention.sdpa(cast(SdpaFp8Problem, problem), backend)
        count = 7 if cast(SdpaFp8Problem, problem).key_lengths else 6
        return lambda *given: inner(*given[count:])

    def beside(problem: Problem, given: Tensors) -> Tensors:
        of = cast(SdpaFp8Problem, problem)
        made = dequantised(of, given, torch.float32 if of.lse and backend == "math" else DTYPES[of.dtype])
        return (*made, *attention.mask_beside(of, backend, made))

    return Baseline(forward, frozenset(devices), _settled, beside)


def _settled(problem: Problem, given: Tensors, answer: Tensors) -> Tensors:
    return attention.settled(problem, (*given[:3], *given[6:]), answer)


def _fa3(problem: Problem) -> Callable[..., Tensors]:
    """FlashAttention 3's own FP8, where its package is installed."""
    of = cast(SdpaFp8Problem, problem)
    try:
        package: Any = import_module("fa3_fwd_interface")
    except ImportError:
        package = None

    def forward(q: Tensor, k: Tensor, v: Tensor, *descales: Tensor) -> Tensors:
        if package is None:
            raise RuntimeError("FlashAttention 3 is not installed")
        other_corner = of.causal and of.corner != "bottom_right" and of.seq_q != of.seq_k
        if of.fp8_cache or of.key_lengths or of.lse or of.dtype != "bfloat16" or other_corner:
            raise RuntimeError("it takes all in FP8 and no lengths, gives bfloat16, and masks end at the bottom right")
        named = dict(zip(("q_descale", "k_descale", "v_descale"), descales, strict=True))
        found = package.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=of.causal, **named)
        return ((found[0] if isinstance(found, tuple) else found).transpose(1, 2),)

    return forward


BASELINES = {
    "fa3_fp8": Baseline(_fa3, frozenset({"cuda"}), _settled),
    "flash": _widened("flash", "cpu", "cuda"),
    "cudnn": _widened("cudnn", "cuda"),
    "math": _widened("math", "cpu", "cuda"),
}
PEER = "flash"
BETWEEN = {"cpu": "math", "cuda": "flash"}

LOUD, CHANNEL, FAR_BELOW = 1000.0, 100.0, 100.0
TAIL = math.log(1500)
NOT_A_NUMBER = 0x7F
"""The byte of a NaN."""


def inputs(problem: SdpaFp8Problem, distribution: str, seed: int) -> Tensors:
    """Q, K and V as they are stored, the descales of each, and lengths of the keys where the problem has them; on the
    CPU. Same seed, same tensors, on whatever device they are used."""
    generator = torch.Generator().manual_seed(seed)
    like = distribution if distribution in ("large", "huge", "one_hot", "zero_q", "uniform01", "slopes", "sink") else ""
    dense = problem.model_copy(update={"layout": "bhsd"})
    drawn = distributions.inputs(dense, "ragged" if distribution == "ragged" else like or "randn", seed)
    q, k, v = (each.float() for each in drawn[:3])
    if distribution in SHARED:
        q, k, v = (x[each] for x, each in zip((q, k, v), SHARED[distribution], strict=True))
    (q, k, v), descales = _stored(problem, distribution, q, k, v, generator)
    placed = laid_out(problem, distribution, q, k, v)
    if distribution == "ragged":
        for tensor in placed[1:]:  # what a cache holds past its length may be anything
            tensor.view(torch.uint8).masked_fill_(past(problem, drawn[3]), NOT_A_NUMBER)
    return (*placed, *descales, *drawn[3:])


def _stored(
    problem: SdpaFp8Problem, distribution: str, q: Tensor, k: Tensor, v: Tensor, generator: torch.Generator
) -> tuple[Tensors, Tensors]:
    """Q, K and V, and their descales."""
    sizes = (problem.batch, problem.heads_kv)
    if distribution == "descales":
        high = torch.randint(2, (2, *sizes), generator=generator)
        of_q, of_v = (256.0 ** (2 * each - 1) * (1 + torch.rand(sizes, generator=generator)) for each in high)
        of_k = (1 + torch.rand(sizes, generator=generator)) / of_q  # so that scores are ordinary
        return as_asked(problem, q, k, v), (of_q, of_k, of_v)
    if distribution == "full_range":
        signs = (LARGEST * torch.where(x >= 0, 1.0, -1.0) for x in (q, k, v))
        small = torch.full(sizes, 1 / LARGEST)
        return as_asked(problem, *signs), (small, small.clone(), small.clone())
    if distribution == "loud_head":
        v[:, 0] *= LOUD
    elif distribution == "huge_channel":
        v[..., int(torch.randint(v.shape[-1], (1,), generator=generator))] *= CHANNEL
    elif distribution == "const_v":
        v.fill_(0.75)
    elif distribution == "equal":
        k[:] = k[:, :, :1].clone()
    elif distribution == "far_below":
        q[..., 0], k[..., 0] = FAR_BELOW / 8, -8 * q.shape[-1] ** 0.5
    elif distribution == "tail":
        q, k[..., 0] = q / 2, 0.0
        q[..., 0], k[:, :, [0, -1], 0] = 1.0, TAIL * q.shape[-1] ** 0.5
    if distribution == "ragged":  # of NaN nothing is the largest
        k, v = k.nan_to_num(0), v.nan_to_num(0)
    pairs = quantised_as_asked(problem, q, k, v)
    # a descale for every batch and head, also where they share what is stored
    return tuple(x for x, _ in pairs), tuple(descale.expand(sizes).contiguous() for _, descale in pairs)


def as_asked(problem: SdpaFp8Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensors:
    """Rounded to what is stored."""
    return (q.to(DTYPES[problem.dtype]) if problem.fp8_cache else stored(q), stored(k), stored(v))


def quantised_as_asked(problem: SdpaFp8Problem, *qkv: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Q, K and V with their descales: 1 where Q is in 16 bits."""
    q, *kv = [quantised(x, problem.heads_kv if x.shape[1] > 1 else 1) for x in qkv]
    return [(qkv[0].to(DTYPES[problem.dtype]), torch.ones_like(q[1])) if problem.fp8_cache else q, *kv]
