"""How Q, K, V and their descales are drawn, and lengths of the keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autotuner.ops.sdpa import distributions
from autotuner.ops.sdpa.layouts import SHARED, laid_out
from autotuner.ops.sdpa.masks import past
from autotuner.ops.sdpa_fp8.problem import SdpaFp8Problem
from autotuner.ops.sdpa_fp8.quantising import LARGEST, quantised, stored
from autotuner.ops.tensors import Tensors

LOUD, CHANNEL, FAR_BELOW = 1000.0, 100.0, 100.0
TAIL = math.log(1500)
NOT_A_NUMBER = 0x7F
"""The byte of a NaN."""

Quantised = tuple[Tensor, Tensor]
"""What is stored, and the descales."""


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
        return tuple(map(stored, (q, k, v))), (of_q, of_k, of_v)
    if distribution == "full_range":
        signs = (LARGEST * torch.where(x >= 0, 1.0, -1.0) for x in (q, k, v))
        small = torch.full(sizes, 1 / LARGEST)
        return tuple(map(stored, signs)), (small, small.clone(), small.clone())
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
    pairs = [_of_batches(problem, *quantised(x, problem.heads_kv if x.shape[1] > 1 else 1)) for x in (q, k, v)]
    return tuple(x for x, _ in pairs), tuple(descale for _, descale in pairs)


def _of_batches(problem: SdpaFp8Problem, x: Tensor, descale: Tensor) -> Quantised:
    """With a descale for every batch and head, also where they share what is stored."""
    return x, descale.expand(problem.batch, problem.heads_kv).contiguous()
