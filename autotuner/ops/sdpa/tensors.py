"""Attention in tensors: inputs by distribution, float64 reference, low-precision emulation, torch's backends."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from autotuner.ops import compiled
from autotuner.ops.op import Baseline
from autotuner.ops.sdpa import masks
from autotuner.ops.sdpa.distributions import inputs as inputs, output_like
from autotuner.ops.sdpa.flex import module as module
from autotuner.ops.sdpa.masks import added, given, past, visible
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import DTYPES, Tensors, plain_product, shifted, sums_in_order
from autotuner.values.problem import Problem

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
"""torch's own names of its backends, by the name they have in reports."""
TERMS = 1 << 24
"""Of heads that are looked at together. A score of equal terms is off to one side, by their size: each batch's own."""
ORDERS = 8
"""Orders of summation in which the float32 emulation is computed, as a single one may be lucky."""
ROWS = 32
"""Rows of a case in which that is done: those where the order decides most."""
LARGE = 4096
"""Scores of a size whose last digit in float32 moves weights by more than a thousandth."""


def sdpa(problem: SdpaProblem, backend: str) -> Callable[..., Tensors]:
    """torch's SDPA for this problem, pinned to one backend, of the inputs and of `mask_beside` them. Calling it raises
    RuntimeError where the backend cannot. With log-sum-exps it is torch's own function that returns them."""
    pinned, causal = BACKENDS[backend], masks.is_causal(problem)
    masked = masks.needed(problem)

    def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensors:
        mask = rest[-1] if masked else None  # behind the inputs
        if problem.softcapped and backend != "math":
            raise RuntimeError(f"{backend} caps no scores")
        if beside_scores(problem) or problem.lse:
            found = with_lse(problem, backend, q, k, v, mask)
            sinks = given(problem, (q, k, v, *rest)).sinks
            found = found if sinks is None else _drawn_off(found, sinks)
            return found if problem.lse else found[:1]
        with sdpa_kernel([pinned]):
            return (
                scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=problem.grouped),
            )

    return forward


def beside_scores(problem: SdpaProblem) -> bool:
    """Whether torch's function has no argument for what is made of the scores."""
    return problem.softcapped or problem.sinks != "none"


def _drawn_off(found: Tensors, sinks: Tensor) -> Tensors:
    """O and log-sum-exps with what the sinks draw off: where log-sum-exps are known that is one factor of a row."""
    o, lse = found
    sinks = sinks.float().view(-1, 1)
    return o * torch.sigmoid(lse - sinks)[..., None].to(o.dtype), torch.logaddexp(lse, sinks)


def mask_beside(problem: SdpaProblem, backend: str, inputs: Tensors) -> Tensors:
    """The mask that says what lengths and a corner say, where there must be one; as numbers where only those do."""
    mask = masks.mask(problem, inputs)
    if mask is None:
        return ()
    if mask.dtype != torch.bool:
        return (mask,)
    numbers = (problem.lse or beside_scores(problem)) and backend != "math"
    return (masks.bias(~mask, inputs[0].dtype) if numbers else mask,)


def with_lse(problem: SdpaProblem, backend: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensors:
    """O and the log-sum-exps by the functions of torch below SDPA, which hand them out; `mask` as `mask_beside` gives
    it. Raises RuntimeError where one of that name does not take the problem."""
    aten, causal = torch.ops.aten, masks.is_causal(problem)
    if backend != "flash" or mask is not None or q.device.type == "cpu":
        k, v = _of_heads(problem, k), _of_heads(problem, v)
    if backend == "math":
        scores = capped(problem, q.float() @ k.float().transpose(-1, -2) * problem.scale)
        hidden = mask if mask is not None else visible(problem, None, q.device)
        if hidden is not None:
            scores = scores.masked_fill(~hidden, -math.inf) if hidden.dtype == torch.bool else scores + hidden
        weights = torch.softmax(scores, -1).nan_to_num(0)
        return (weights.to(v.dtype) @ v, torch.logsumexp(scores, -1))
    if q.device.type == "cpu":
        found = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask)
    elif backend == "flash" and mask is None and not (causal and q.shape[2] != k.shape[2]):  # its corner is the other
        found = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
    elif backend == "efficient":
        found = aten._scaled_dot_product_efficient_attention(q, k, v, _of_all_heads(mask, q), True, 0.0, causal)
    elif backend == "cudnn":
        found = aten._scaled_dot_product_cudnn_attention(q, k, v, _of_all_heads(mask, q), True, 0.0, causal, False)
    else:
        raise RuntimeError(f"{backend} takes no such mask")
    return found[0], found[1].reshape(q.shape[0], q.shape[1], -1)[..., : q.shape[2]]


def _of_all_heads(mask: Tensor | None, q: Tensor) -> Tensor | None:
    return None if mask is None else mask.expand(-1, q.shape[1], -1, -1)


def _baseline(backend: str, *devices: str) -> Baseline:
    return Baseline(
        lambda problem: sdpa(cast(SdpaProblem, problem), backend),
        frozenset(devices),
        settled,
        lambda problem, inputs: mask_beside(cast(SdpaProblem, problem), backend, inputs),
    )


def settled(problem: Problem, inputs: Tensors, answer: Tensors) -> Tensors:
    """torch does not say what a row is that sees no key, its backends differ, and no model looks at one. Here it is 0,
    and its log-sum-exp -inf, or the sink."""
    of = given(cast(SdpaProblem, problem), inputs)
    blind = masks.blind(cast(SdpaProblem, problem), of)
    if blind is None:
        return answer
    o, *lse = answer
    blind = blind.expand(o.shape[:3])
    nothing = torch.full((1, 1), -math.inf, device=o.device) if of.sinks is None else of.sinks.float().view(-1, 1)
    return (o.masked_fill(blind[..., None], 0), *(torch.where(blind, nothing.to(each.dtype), each) for each in lse))


class SdpaSymmetry:
    """Of every set the batches are permuted alike, and the heads of K and V, each with those of Q that look at it,
    which are permuted among themselves. Each set has columns of its own in which the signs of Q and K change, where
    every product of a score keeps its bits, and others in which those of V and O do."""

    def __init__(self, problem: SdpaProblem, seed: int, sets: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(seed)
        batches, heads_kv = (torch.randperm(n, generator=generator) for n in (problem.batch, problem.heads_kv))
        members = torch.randperm(problem.group, generator=generator)
        heads = (heads_kv.unsqueeze(1) * problem.group + members).flatten()
        self._lengths = int(problem.key_lengths)
        self._batches, self._heads, self._heads_kv = (each.to(device) for each in (batches, heads, heads_kv))
        signs = 2.0 * torch.randint(2, (2, sets, 1, 1, 1, problem.head_dim), generator=generator) - 1.0
        self._scores, self._values = signs.to(device)

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        heads = (self._heads, self._heads_kv, self._heads_kv)
        signs = (self._scores, self._scores, self._values)
        for tensor, other, of_tensor, signed in zip(plain[:3], into[:3], heads, signs, strict=True):
            self._move(tensor, of_tensor, signed, other)
        for place, (each, other) in enumerate(zip(plain[3:], into[3:], strict=True)):
            if each.dim() == 4:
                other.copy_(self._permuted(each, self._heads))
            else:
                other.copy_(each[self._batches if place < self._lengths else self._heads])

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        self._move(plain[0], self._heads, self._values, into[0])
        for lse, other in zip(plain[1:], into[1:], strict=True):
            other.copy_(self._permuted(lse, self._heads))

    def _permuted(self, plain: Tensor, heads: Tensor) -> Tensor:
        """Whole slices at a time: plain[batches, heads] goes element by element and takes three times as long."""
        moved = plain.index_select(1, heads)
        return moved.index_select(0, self._batches) if len(moved) > 1 else moved

    def _move(self, plain: Tensor, heads: Tensor, signs: Tensor, into: Tensor) -> None:
        torch.mul(self._permuted(plain, heads), signs.to(plain.dtype), out=into)


symmetry = SdpaSymmetry


BASELINES = {
    "flash": _baseline("flash", "cpu", "cuda"),
    "efficient": _baseline("efficient", "cuda"),
    "cudnn": _baseline("cudnn", "cuda"),
    "math": _baseline("math", "cpu", "cuda"),
    "flex": Baseline(
        compiled.forward,
        frozenset({"cpu", "cuda"}),
        settled,
        is_made=compiled.is_made,
        takes=lambda problem: cast(SdpaProblem, problem).in_blocks,
        writes_code=True,
    ),
}
PEER = "flash"
BETWEEN = {"cpu": "math", "cuda": "efficient"}


def fresh(problem: SdpaProblem, inputs: Tensors, seed: int) -> Tensors:
    """Other Q, K and V, drawn as these; the same lengths."""
    return (*shifted(inputs[:3], seed), *inputs[3:])


def outputs(problem: SdpaProblem, inputs: Tensors) -> Tensors:
    """An empty O, and empty log-sum-exps where they are wanted."""
    q = inputs[0]
    lse = (torch.empty(q.shape[:3], dtype=torch.float32, device=q.device),) if problem.lse else ()
    return (output_like(problem, q), *lse)


def reordered(problem: SdpaProblem, inputs: Tensors, true: Tensors) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
    """Of O only in float32 the sums are what rounds, in the rows where that shows most. Log-sum-exps always are."""
    if problem.dtype == "float32":
        at = sensitive_rows(problem, inputs, true[0]).unbind(1)
        yield from ((0, at, again) for again in reordered_rows(problem, inputs, at))
    if problem.lse:
        at = sensitive_heads(problem, inputs, true[1]).unbind(1)
        yield from ((1, at, again) for again in reordered_lse(problem, inputs, at))


def _of_heads(problem: SdpaProblem, x: Tensor) -> Tensor:
    """K or V with a head for every head of Q."""
    return x.repeat_interleave(problem.group, 1) if problem.grouped else x


ALL = slice(None)
LOG2_E = math.log2(math.e)


def capped(problem: SdpaProblem, scores: Tensor, unit: float = 1.0) -> Tensor:
    """Scaled scores, in powers of e^(1/unit), as they are where none are capped."""
    cap = problem.softcap * unit
    return cap * torch.tanh(scores / cap) if problem.softcapped else scores


class _Attended:
    """The inputs, K and V for every head of Q, with zeros past the lengths: a reference multiplies what no row sees by
    0. And what is made of products of Q and K: of all slices and some queries, or of what another index chooses."""

    def __init__(self, problem: SdpaProblem, inputs: Tensors) -> None:
        of, self._problem = given(problem, inputs), problem
        kv = [of.k, of.v] if of.lengths is None else [x.masked_fill(past(problem, of.lengths), 0) for x in (of.k, of.v)]
        self.q, (self.k, self.v), self.sinks = of.q, (_of_heads(problem, x) for x in kv), of.of_heads
        whole = (problem.batch, problem.heads, problem.seq_q, problem.seq_k)
        bias, seen = added(problem, of), visible(problem, of.lengths, of.q.device)
        self._bias = None if bias is None else bias.expand(whole)
        self._hidden = None if seen is None else (~seen).expand(whole)

    def biased(self, scores: Tensor, *at: slice | Tensor, unit: float = 1.0) -> Tensor:
        """Scores in powers of e^(1/unit), with the bias."""
        if self._bias is None:
            return scores
        return scores + self._bias[at].reshape(scores.shape).to(scores.dtype) * unit

    def seen(self, scores: Tensor, *at: slice | Tensor) -> Tensor:
        """The scores, overwritten by -inf where one does not see the key."""
        hidden = self._hidden
        return scores if hidden is None else scores.masked_fill_(hidden[at].reshape(scores.shape), -math.inf)

    def finished(self, scores: Tensor, *at: slice | Tensor, unit: float = 1.0) -> Tensor:
        """Of scaled scores, in powers of e^(1/unit), those that weights are made of."""
        return self.seen(self.biased(capped(self._problem, scores, unit), *at, unit=unit), *at)

    @cached_property
    def _exact_keys(self) -> Tensor:
        return self.k.double().contiguous().transpose(-1, -2)  # dense: read again and again

    def exact(self, rows: slice) -> Tensor:
        """The scores of some queries and every key, in float64."""
        return self.seen(self.biased(self.unbiased(rows), ALL, ALL, rows), ALL, ALL, rows)

    def unbiased(self, rows: slice) -> Tensor:
        """The same before a bias is added, and of hidden keys too."""
        return capped(self._problem, self.q[:, :, rows].double() @ self._exact_keys * self._problem.scale)

    def sizes(self, rows: slice) -> Tensor:
        """How far a rounding moves scores before a bias: by their sizes, and below a cap by those of their terms."""
        scores, problem = self.unbiased(rows), self._problem
        if not problem.softcapped:
            return scores.abs_()
        q, k = self.q[:, :, rows].double().square().sum(-1, True), self._exact_keys.square().sum(-2, True)
        return (q @ k).sqrt_().mul_(problem.scale).mul_(1 - (scores / problem.softcap) ** 2).add_(scores.abs_())

    def sinks_of(self, head: Tensor) -> Tensor | None:
        """Those of some heads, (n, 1, 1)."""
        return None if self.sinks is None else self.sinks[0, head]


def _with_sinks(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """The scores, and that of the sink behind them, where there are sinks."""
    if sinks is None:
        return scores
    return torch.cat([scores, sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)], -1)


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Probabilities of the scores that are not hidden; all 0 in a row that sees nothing."""
    found = torch.softmax(_with_sinks(scores, sinks), -1)[..., : scores.shape[-1]]
    if not bool(found[..., 0].isnan().any()):
        return found
    return found.masked_fill_(scores.isneginf().all(-1, keepdim=True), 0)


def _plain_softmax(scores: Tensor, sinks: Tensor | None, order: Sequence[int] | None = None) -> Tensor:
    """The same in float32 with sums term after term. torch's own adds by a tree, which is nearer to the truth than a
    loop over the keys by far where many scores are equal: rounding then errs to the same side again and again."""
    largest = _largest(scores, sinks)
    weights = torch.exp(scores - largest)
    sums = _plain_sums(weights, order)
    if sinks is not None:
        sums = sums + torch.exp(sinks.float() - largest)
    return weights / sums.clamp_min(torch.finfo(scores.dtype).tiny)


def _largest(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Of each row; a number in a row that sees nothing."""
    found = scores.amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).min)
    return found if sinks is None else torch.maximum(found, sinks.float())


def _plain_sums(weights: Tensor, order: Sequence[int] | None = None) -> Tensor:
    if weights.device.type == "cpu":
        return sums_in_order(weights if order is None else weights[..., order])
    ones = weights.new_ones(*weights.shape[:-2], weights.shape[-1], 1)
    return plain_product(weights, ones, order)


PIECE_BYTES = {"cpu": 8 << 20, "cuda": 1 << 30}
"""Of the scores that a reference has at a time: what a cache holds; on a GPU enough to fill it."""
EMULATED_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
"""The same of an emulation, which takes a step for every key: many rows at a time, but not all of a long problem."""


def pieces(problem: SdpaProblem, device: str, most: Mapping[str, int] = PIECE_BYTES) -> Iterator[slice]:
    """The queries, some at a time, of all heads."""
    row_bytes = 8 * problem.batch * problem.heads * problem.seq_k
    step = max(1, most.get(device, most["cpu"]) // row_bytes)
    return (slice(first, first + step) for first in range(0, problem.seq_q, step))


def reference(problem: SdpaProblem, inputs: Tensors) -> Tensors:
    """r: attention of the exact low-precision inputs, computed in float64; (batch, heads, seq_q, head_dim). A row that
    sees no key gives 0. Where they are wanted, the log-sum-exps (batch, heads, seq_q), of such a row -inf, or the
    sink."""
    of = _Attended(problem, inputs)
    v = of.v.double().contiguous()
    o = torch.empty(problem.batch, problem.heads, problem.seq_q, problem.head_dim, dtype=torch.float64, device=v.device)
    lse = o.new_empty(o.shape[:-1])
    for rows in pieces(problem, of.q.device.type):
        scores = of.exact(rows)
        o[:, :, rows] = _softmax(scores, of.sinks) @ v
        if problem.lse:
            lse[:, :, rows] = torch.logsumexp(_with_sinks(scores, of.sinks), -1)
    return (o, lse) if problem.lse else (o,)


def emulation(problem: SdpaProblem, inputs: Tensors) -> Tensors:
    """P: what the textbook algorithm gives in the problem's dtype, with sums in float32; returned in float64.

    k * scale, the scores, the probabilities and the output are each rounded to the dtype. In a 16-bit dtype those
    roundings dominate and the sums may be exact; in float32 the sums are what rounds. After FlashAttention's tests,
    which compare with an implementation in the low precision (Dao et al., 2022).
    """
    dtype, of = DTYPES[problem.dtype], _Attended(problem, inputs)
    scaled_k = (of.k.float() * problem.scale).to(dtype).transpose(-1, -2)

    def emulated(rows: slice) -> Tensor:
        q, at = of.q[:, :, rows], (ALL, ALL, rows)
        if dtype == torch.float32:
            scores = of.finished(plain_product(q, scaled_k), *at)
            return plain_product(_plain_softmax(scores, of.sinks), of.v).double()
        scores = _rounded(q.double() @ scaled_k.double(), dtype)
        scores = _rounded(capped(problem, scores), dtype) if problem.softcapped else scores
        scores = _rounded(of.biased(scores, *at), dtype) if problem.bias != "none" else scores
        probabilities = _softmax(of.seen(scores, *at).double(), of.sinks).to(dtype)
        return (probabilities.double() @ of.v.double()).to(dtype).double()

    def emulated_lse(rows: slice) -> Tensor:
        """float32 whatever the dtype: scores in float32, in powers of two, as FlashAttention has them, and weights that
        are rounded to the dtype before they are summed."""
        scores = plain_product(of.q[:, :, rows].float(), of.k.float().transpose(-1, -2)) * float(problem.scale * LOG2_E)
        return _plain_lse(problem, of.finished(scores, ALL, ALL, rows, unit=LOG2_E), of.sinks)

    some = list(pieces(problem, of.q.device.type, EMULATED_BYTES))
    o = torch.cat([emulated(rows) for rows in some], 2)
    return (o, torch.cat([emulated_lse(rows) for rows in some], 2)) if problem.lse else (o,)


def _rounded(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """The scores with the digits that the dtype has. Kernels keep them in float32: none is too large."""
    largest = float(torch.where(scores.isinf(), 0, scores).abs().max())
    fit = 2.0 ** max(0, math.frexp(largest / torch.finfo(dtype).max)[1])
    rounded: Tensor = (scores / fit).to(dtype).double() * fit
    return rounded


def _plain_lse(
    problem: SdpaProblem, scores: Tensor, sinks: Tensor | None, order: Sequence[int] | None = None, above: float = 0.0
) -> Tensor:
    """Of scores in powers of 2. `above`: how far above the largest is what weights are relative to."""
    sinks = None if sinks is None else sinks.float() * LOG2_E
    largest = _largest(scores, sinks) + above
    weights = torch.exp2(scores - largest).to(DTYPES[problem.dtype]).float()
    sums = _plain_sums(weights, order)
    if sinks is not None:
        sums = sums + torch.exp2(sinks - largest)
    return ((largest + torch.log2(sums))[..., 0] * math.log(2)).double()


def sensitive_rows(problem: SdpaProblem, inputs: Tensors, exact: Tensor) -> Tensor:
    """The ROWS rows, or all if there are fewer, whose outputs move most when scores are off in their last digit: those
    are large before a bias is added, and none has all the weight. (rows, 3): batch, head and query of each."""
    of = _Attended(problem, inputs)
    largest = of.v.abs().amax((-1, -2)).unsqueeze(-1)

    def moved(rows: slice) -> Tensor:
        weights = _softmax(of.exact(rows), of.sinks)
        sizes = of.sizes(rows).nan_to_num_(0)  # what lies past a length may be no number
        return sizes.mul_((1 - weights).mul_(weights)).sum(-1) * largest

    moves = torch.cat([moved(rows) for rows in pieces(problem, of.q.device.type)], 2)
    moves = moves / exact.abs().amax(-1).clamp_min(torch.finfo(torch.float64).tiny)
    found = moves.flatten().topk(min(ROWS, moves.numel())).indices
    heads, queries = moves.shape[1:]  # torch.unravel_index imports 500 modules first, in every process
    return torch.stack((found // (heads * queries), found // queries % heads, found % queries), dim=1)


def _orders(problem: SdpaProblem) -> Iterator[tuple[list[int], list[int]]]:
    """The dimensions and the keys in ORDERS - 1 other orders."""
    for order in range(1, ORDERS):
        generator = torch.Generator().manual_seed(order)
        dims, keys = (torch.randperm(size, generator=generator).tolist() for size in (problem.head_dim, problem.seq_k))
        yield dims, keys


def reordered_rows(problem: SdpaProblem, inputs: Tensors, at: Tensors) -> Iterator[Tensor]:
    """P in float32 at some rows, batch, head and query of each, with the terms of all sums in other orders: ORDERS - 1
    times (n, D), in float64. Then as often with the rounding alone of scores in powers of 2, of a Q that was scaled
    before: of some inputs scores are exact in any order, but for that. Who scales so must not where scores are LARGE.
    """
    of, of_slices = _Attended(problem, inputs), at[:2]
    sinks = of.sinks_of(at[1])
    q, k, v = of.q[at].unsqueeze(1), of.k.transpose(-1, -2)[of_slices].contiguous(), of.v[of_slices]
    scaled = q * float(problem.scale * LOG2_E)
    for dims, keys in _orders(problem):
        scores = of.finished(plain_product(q, k * problem.scale, dims), *at)
        found = plain_product(_plain_softmax(scores, sinks, keys), v, keys)[:, 0].double()
        yield found
        small = scores.masked_fill(scores.isneginf(), 0).abs().amax(-1) < LARGE
        scores = of.finished(plain_product(scaled, k, dims), *at, unit=LOG2_E).double() * math.log(2)
        again = (_softmax(scores, None if sinks is None else sinks.double()) @ v.double())[:, 0]
        yield torch.where(small, again, found)


def sensitive_heads(problem: SdpaProblem, inputs: Tensors, exact: Tensor) -> Tensor:
    """The heads, of ROWS queries or TERMS terms together or one, whose log-sum-exps are largest, and as many that move
    most if scores are off in their last digit: those are sums of large terms. (heads, 2): batch and head of each."""
    of = _Attended(problem, inputs)
    keys = of.k.double().abs().transpose(-1, -2)

    def moved(rows: slice) -> Tensor:
        terms = of.q[:, :, rows].double().abs() @ keys
        return (_softmax(of.exact(rows), of.sinks) * terms).sum(-1)

    moves = torch.cat([moved(rows) for rows in pieces(problem, of.q.device.type)], 2)
    sizes = exact.abs().masked_fill(exact.isinf(), 0), moves / exact.abs().clamp_min(1)  # of a row that sees nothing 0
    one = problem.seq_q * problem.seq_k * problem.head_dim
    count = min(max(1, ROWS // problem.seq_q, TERMS // one), problem.batch * problem.heads)
    found = torch.cat([each.amax(-1).flatten().topk(count).indices for each in sizes]).unique()
    return torch.stack((found // problem.heads, found % problem.heads), dim=1)


def reordered_lse(problem: SdpaProblem, inputs: Tensors, at: Tensors) -> Iterator[Tensor]:
    """The log-sum-exps of some heads, batch and head of each, of a Q that was scaled before, for powers of e or of 2 by
    turns: each of its numbers is rounded once more then, by as much where all are alike. First in the textbook order of
    all sums, then in others, and of weights that are rounded at other places: of one row all those roundings may cancel
    each other. ORDERS times (n, seq_q), in float64."""
    of = _Attended(problem, inputs)
    q, k = of.q[at].float(), of.k[at].float().transpose(-1, -2)
    for place, (dims, keys) in enumerate([(None, None), *_orders(problem)]):
        unit = (1.0, LOG2_E)[place % 2]
        scores = of.finished(plain_product(q * float(problem.scale * unit), k, dims), *at, unit=unit)
        yield _plain_lse(problem, scores.double() * (LOG2_E / unit), of.sinks_of(at[1]), keys, place / ORDERS)
