"""Exact symmetries of attention: batches and heads permuted, and signs of columns."""

from __future__ import annotations

import torch
from torch import Tensor

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors


class SdpaSymmetry:
    """Of every set the batches are permuted alike, and the heads of K and V, each with those of Q that look at it,
    which are permuted among themselves. Each set has columns of its own in which the signs of Q and K change, where
    every product of a score keeps its bits, and others in which those of V and O do."""

    def __init__(self, problem: SdpaProblem, seed: int, sets: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(seed)
        batches, heads_kv = (torch.randperm(n, generator=generator) for n in (problem.batch, problem.heads_kv))
        members = torch.randperm(problem.group, generator=generator)
        heads = (heads_kv.unsqueeze(1) * problem.group + members).flatten()
        self._batches, self._heads, self._heads_kv = (each.to(device) for each in (batches, heads, heads_kv))
        signs = 2.0 * torch.randint(2, (2, sets, 1, 1, 1, problem.head_dim), generator=generator) - 1.0
        self._scores, self._values = signs.to(device)

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        heads = (self._heads, self._heads_kv, self._heads_kv)
        signs = (self._scores, self._scores, self._values)
        for tensor, other, of_tensor, signed in zip(plain[:3], into[:3], heads, signs, strict=True):
            self._move(tensor, of_tensor, signed, other)
        for lengths, other in zip(plain[3:], into[3:], strict=True):
            other.copy_(lengths[self._batches])

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        self._move(plain[0], self._heads, self._values, into[0])
        for lse, other in zip(plain[1:], into[1:], strict=True):
            other.copy_(self._permuted(lse, self._heads))

    def _permuted(self, plain: Tensor, heads: Tensor) -> Tensor:
        """Whole slices at a time: plain[batches, heads] goes element by element and takes three times as long."""
        moved = plain.index_select(1, heads)
        return moved.index_select(0, self._batches) if len(self._batches) > 1 else moved

    def _move(self, plain: Tensor, heads: Tensor, signs: Tensor, into: Tensor) -> None:
        torch.mul(self._permuted(plain, heads), signs.to(plain.dtype), out=into)
