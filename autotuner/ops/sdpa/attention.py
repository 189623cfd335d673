"""The op sdpa in tensors: inputs by distribution, float64 reference, low-precision emulation, SDPA baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from autotuner.ops.sdpa.problem import Distribution, Problem

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
"""SDPA backends of torch, by the name they have in reports."""
CPU_BACKENDS = ("flash", "math")
CUDA_BACKENDS = tuple(BACKENDS)
ORDERS = 8
"""In so many orders the float32 emulation sums where a single one may be lucky."""
ROWS = 32
"""That is tried in so many rows of a case, those where the order decides most."""
CACHED = 1 << 18
"""A plain product on the CPU takes so many elements of its result at a time, which stay in the cache."""


def _one_hot(q: Tensor, k: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each query matches one random key: k = sign(randn), q_i = 4 k_pi(i); with 64 dims the matching logit is 32."""
    k = torch.where(k >= 0, 1.0, -1.0)
    chosen = torch.randint(k.shape[-2], (q.shape[0], q.shape[1], q.shape[2], 1), generator=generator)
    return 4 * torch.gather(k, 2, chosen.expand(-1, -1, -1, k.shape[-1])), k


def inputs(problem: Problem, distribution: Distribution, seed: int) -> tuple[Tensor, Tensor, Tensor]:
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
    dtype = DTYPES[problem.dtype]
    return q.to(dtype), k.to(dtype), v.to(dtype)


def hidden(problem: Problem, device: torch.device) -> Tensor | None:
    """(seq_q, seq_k) mask of the scores that no row may see; None for a full problem."""
    if not problem.causal:
        return None
    return torch.ones(problem.seq_q, problem.seq_k, dtype=torch.bool, device=device).triu(1)


def _softmax(problem: Problem, scores: Tensor) -> Tensor:
    """Probabilities of the visible scores."""
    mask = hidden(problem, scores.device)
    return torch.softmax(scores if mask is None else scores.masked_fill(mask, -math.inf), -1)


def reference(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """r: attention of the exact low-precision inputs, computed in float64; (batch, heads, seq_q, head_dim)."""
    scores = q.double() @ k.double().transpose(-1, -2) * problem.scale
    return _softmax(problem, scores) @ v.double()


@contextmanager
def on_one_thread() -> Iterator[None]:
    """torch computes on one CPU in the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _plain_product(a: Tensor, b: Tensor, order: Sequence[int] | None = None) -> Tensor:
    """a @ b in float32, term after term: the textbook order of summation, or `order`; the same on every machine and
    library.

    On one CPU: steps this small take longer to share out than to do, and many times as long when another program uses
    one of the CPUs.
    """
    shape = (*a.shape[:-1], b.shape[-1])
    a, b = a.flatten(0, -3), b.flatten(0, -3).contiguous()
    total = torch.zeros(a.shape[0], a.shape[1], b.shape[2], device=a.device)
    on_cpu = total.device.type == "cpu"
    rows = max(1, CACHED // b.shape[2] if on_cpu else total.numel())
    matrices = max(1, rows // a.shape[1])
    with on_one_thread() if on_cpu else nullcontext():
        for first, row in product(range(0, a.shape[0], matrices), range(0, a.shape[1], rows)):
            some = slice(first, first + matrices)
            part, terms = total[some, row : row + rows], a[some, row : row + rows].split(1, 2)
            factors = b[some].split(1, 1)
            for index in range(len(terms)) if order is None else order:
                part.addcmul_(terms[index], factors[index])
    return total.view(shape)


def emulation(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """P: what the textbook algorithm gives in the problem's dtype, with sums in float32; returned in float64.

    k * scale, the scores, the probabilities and the output are each rounded to the dtype. In a 16-bit dtype those
    roundings dominate and the sums may be exact; in float32 the sums are what rounds. After FlashAttention's tests,
    which compare with an implementation in the low precision (Dao et al., 2022).
    """
    dtype = DTYPES[problem.dtype]
    scaled_k = (k.float() * problem.scale).to(dtype)
    if dtype == torch.float32:
        probabilities = _softmax(problem, _plain_product(q, scaled_k.transpose(-1, -2)))
        return _plain_product(probabilities, v).double()
    scores = (q.double() @ scaled_k.double().transpose(-1, -2)).to(dtype)
    probabilities = _softmax(problem, scores.double()).to(dtype)
    return (probabilities.double() @ v.double()).to(dtype).double()


def sensitive_rows(problem: Problem, q: Tensor, k: Tensor, v: Tensor, exact: Tensor) -> Tensor:
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


def reordered(problem: Problem, q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """P in float32 at some rows, (n, 3) as above, with the terms of all sums in other orders: ORDERS - 1 times (n, D),
    in float64."""
    batch, head, query = rows.unbind(1)
    q, v = q[batch, head, query].unsqueeze(1), v[batch, head]
    scaled_k = (k * problem.scale).transpose(-1, -2)[batch, head].contiguous()
    mask = hidden(problem, q.device)
    for order in range(1, ORDERS):
        generator = torch.Generator().manual_seed(order)
        dims, keys = (torch.randperm(size, generator=generator).tolist() for size in (q.shape[-1], v.shape[-2]))
        scores = _plain_product(q, scaled_k, dims)
        if mask is not None:
            scores = scores.masked_fill(mask[query].unsqueeze(1), -math.inf)
        yield _plain_product(torch.softmax(scores, -1), v, keys)[:, 0].double()


def sdpa(problem: Problem, backend: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """torch's SDPA for this problem, pinned to one backend. Calling it raises RuntimeError where the backend cannot."""
    pinned = BACKENDS[backend]

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel([pinned]):
            return scaled_dot_product_attention(q, k, v, is_causal=problem.causal)

    return forward
