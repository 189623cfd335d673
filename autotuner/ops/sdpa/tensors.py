"""Attention in tensors: inputs by distribution, float64 reference, low-precision emulation, torch's backends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from autotuner.ops.op import Baseline
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.symmetry import SdpaSymmetry
from autotuner.ops.tensors import DTYPES, Symmetry, Tensors, plain_product, shifted
from autotuner.values.problem import Problem

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
"""torch's own names of its backends, by the name they have in reports."""
ORDERS = 8
"""Orders of summation in which the float32 emulation is computed, as a single one may be lucky."""
ROWS = 32
"""Rows of a case in which that is done: those where the order decides most."""


def sdpa(problem: SdpaProblem, backend: str) -> Callable[[Tensor, Tensor, Tensor], Tensors]:
    """torch's SDPA for this problem, pinned to one backend. Calling it raises RuntimeError where the backend cannot."""
    pinned = BACKENDS[backend]

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensors:
        with sdpa_kernel([pinned]):
            return (scaled_dot_product_attention(q, k, v, is_causal=problem.causal),)

    return forward


def _baseline(backend: str, *devices: str) -> Baseline:
    return Baseline(lambda problem: sdpa(cast(SdpaProblem, problem), backend), frozenset(devices))


class SdpaTensors:
    """The record of this module's functions that the other rooms use."""

    BASELINES: ClassVar[Mapping[str, Baseline]] = {
        "flash": _baseline("flash", "cpu", "cuda"),
        "efficient": _baseline("efficient", "cuda"),
        "cudnn": _baseline("cudnn", "cuda"),
        "math": _baseline("math", "cpu", "cuda"),
    }
    PEER: ClassVar[str] = "flash"
    BETWEEN: ClassVar[Mapping[str, str]] = {"cpu": "math", "cuda": "flash"}

    def inputs(self, problem: Problem, distribution: str, seed: int) -> Tensors:
        return inputs(cast(SdpaProblem, problem), distribution, seed)

    def fresh(self, problem: Problem, inputs: Tensors, seed: int) -> Tensors:
        return shifted(inputs, seed)

    def symmetry(self, problem: Problem, seed: int, sets: int, device: torch.device) -> Symmetry:
        return SdpaSymmetry(cast(SdpaProblem, problem), seed, sets, device)

    def outputs(self, problem: Problem, inputs: Tensors) -> Tensors:
        return (torch.empty_like(inputs[0]),)  # O has the shape and type of Q

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return (reference(cast(SdpaProblem, problem), *inputs),)

    def emulation(self, problem: Problem, inputs: Tensors) -> Tensors:
        return (emulation(cast(SdpaProblem, problem), *inputs),)

    def reordered(
        self, problem: Problem, inputs: Tensors, exact: Tensors
    ) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
        """Only in float32 the sums are what rounds, in the rows where that shows most."""
        if problem.dtype != "float32":
            return
        q, k, v = inputs
        rows = sensitive_rows(cast(SdpaProblem, problem), q, k, v, exact[0])
        for again in reordered(cast(SdpaProblem, problem), q, k, v, rows):
            yield 0, rows.unbind(1), again


def _one_hot(q: Tensor, k: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each query matches one random key: k = sign(randn), q_i = 4 k_pi(i); with 64 dims the matching logit is 32."""
    k = torch.where(k >= 0, 1.0, -1.0)
    chosen = torch.randint(k.shape[-2], (q.shape[0], q.shape[1], q.shape[2], 1), generator=generator)
    return 4 * torch.gather(k, 2, chosen.expand(-1, -1, -1, k.shape[-1])), k


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


def inputs(problem: SdpaProblem, distribution: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K, V of the problem, drawn independently in float32 and rounded to its dtype; on the CPU. Same seed, same
    tensors, on whatever device they are used."""
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int) -> Tensor:
        return torch.randn(problem.batch, problem.heads, rows, problem.head_dim, generator=generator)

    q, k, v = draw(problem.seq_q), draw(problem.seq_k), draw(problem.seq_k)
    if distribution == "large":
        q, k, v = 5 * q, 3 * k, 3 * v
    elif distribution == "huge":
        q, k = 16 * q, 16 * k
    elif distribution == "one_hot":
        q, k = _one_hot(q, k, generator)
    elif distribution == "tiny_v":
        v = 1e-6 * v
    elif distribution == "big_v":
        v = 1000 * v
    elif distribution == "zero_q":
        q = torch.zeros_like(q)
    elif distribution == "uniform01":
        q, k, v = (torch.rand(x.shape, generator=generator) for x in (q, k, v))
    elif distribution == "const_v":
        v = torch.full_like(v, 0.75)
    elif distribution in ("slopes", "sink"):
        q, k = _towards(q, k, torch.arange(k.shape[-2]) if distribution == "slopes" else None)
    dtype = DTYPES[problem.dtype]
    return q.to(dtype), k.to(dtype), v.to(dtype)


def hidden(problem: SdpaProblem, device: torch.device) -> Tensor | None:
    """(seq_q, seq_k) mask of the scores that no row may see; None for a full problem."""
    if not problem.causal:
        return None
    return torch.ones(problem.seq_q, problem.seq_k, dtype=torch.bool, device=device).triu(1)


def _softmax(problem: SdpaProblem, scores: Tensor) -> Tensor:
    """Probabilities of the visible scores."""
    mask = hidden(problem, scores.device)
    return torch.softmax(scores if mask is None else scores.masked_fill(mask, -math.inf), -1)


def reference(problem: SdpaProblem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """r: attention of the exact low-precision inputs, computed in float64; (batch, heads, seq_q, head_dim)."""
    scores = q.double() @ k.double().transpose(-1, -2) * problem.scale
    return _softmax(problem, scores) @ v.double()


def emulation(problem: SdpaProblem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """P: what the textbook algorithm gives in the problem's dtype, with sums in float32; returned in float64.

    k * scale, the scores, the probabilities and the output are each rounded to the dtype. In a 16-bit dtype those
    roundings dominate and the sums may be exact; in float32 the sums are what rounds. After FlashAttention's tests,
    which compare with an implementation in the low precision (Dao et al., 2022).
    """
    dtype = DTYPES[problem.dtype]
    scaled_k = (k.float() * problem.scale).to(dtype)
    if dtype == torch.float32:
        probabilities = _softmax(problem, plain_product(q, scaled_k.transpose(-1, -2)))
        return plain_product(probabilities, v).double()
    scores = (q.double() @ scaled_k.double().transpose(-1, -2)).to(dtype)
    probabilities = _softmax(problem, scores.double()).to(dtype)
    return (probabilities.double() @ v.double()).to(dtype).double()


def sensitive_rows(problem: SdpaProblem, q: Tensor, k: Tensor, v: Tensor, exact: Tensor) -> Tensor:
    """The ROWS rows, or all if there are fewer, whose outputs move most when scores are off in their last digit: large
    scores of which none has all the weight. (rows, 3): batch, head and query of each.
    """
    scores = q.double() @ k.double().transpose(-1, -2) * problem.scale
    weights = _softmax(problem, scores)
    moves = (weights * (1 - weights) * scores.abs()).sum(-1) * v.abs().amax((-1, -2)).unsqueeze(-1)
    moves = moves / exact.abs().amax(-1).clamp_min(torch.finfo(torch.float64).tiny)
    found = moves.flatten().topk(min(ROWS, moves.numel())).indices
    heads, queries = moves.shape[1:]  # torch.unravel_index imports 500 modules first, in every process
    return torch.stack((found // (heads * queries), found // queries % heads, found % queries), dim=1)


def reordered(problem: SdpaProblem, q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """P in float32 at some rows, (n, 3) as above, with the terms of all sums in other orders: ORDERS - 1 times (n, D),
    in float64."""
    batch, head, query = rows.unbind(1)
    q, v = q[batch, head, query].unsqueeze(1), v[batch, head]
    scaled_k = (k * problem.scale).transpose(-1, -2)[batch, head].contiguous()
    mask = hidden(problem, q.device)
    for order in range(1, ORDERS):
        generator = torch.Generator().manual_seed(order)
        dims, keys = (torch.randperm(size, generator=generator).tolist() for size in (q.shape[-1], v.shape[-2]))
        scores = plain_product(q, scaled_k, dims)
        if mask is not None:
            scores = scores.masked_fill(mask[query].unsqueeze(1), -math.inf)
        yield plain_product(torch.softmax(scores, -1), v, keys)[:, 0].double()
