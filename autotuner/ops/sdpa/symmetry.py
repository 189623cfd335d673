"""Exact symmetries of attention: slices permuted, and signs of columns."""

from __future__ import annotations

import torch
from torch import Tensor

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors


class SdpaSymmetry:
    """Of every set the (batch, head) slices are permuted alike. Each set has columns of its own in which the signs of Q
    and K change, where every product of a score keeps its bits, and others in which those of V and O do."""

    def __init__(self, problem: SdpaProblem, seed: int, sets: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._slices = torch.randperm(problem.batch * problem.heads, generator=generator).to(device)
        signs = 2.0 * torch.randint(2, (2, sets, 1, 1, 1, problem.head_dim), generator=generator) - 1.0
        self._scores, self._values = signs.to(device)

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        for tensor, other, signs in zip(plain, into, (self._scores, self._scores, self._values), strict=True):
            self._move(tensor, signs, other)

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        self._move(plain[0], self._values, into[0])

    def _move(self, plain: Tensor, signs: Tensor, into: Tensor) -> None:
        permuted = plain.flatten(0, 1)[self._slices].view(plain.shape)
        torch.mul(permuted, signs.to(plain.dtype), out=into)
