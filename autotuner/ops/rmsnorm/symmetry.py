"""Exact symmetries of rmsnorm: rows permuted, and signs of columns."""

from __future__ import annotations

import torch
from torch import Tensor

from autotuner.ops.rmsnorm.problem import RmsNormProblem
from autotuner.ops.tensors import Tensors


class RmsNormSymmetry:
    """Of every set the rows are permuted alike. Each set has columns of its own in which the sign of X changes, where
    every square keeps its bits, and others in which that of W does.

    The signs are drawn where the sets are: those of small problems that are to be cold, thousands, take a CPU seconds.
    """

    def __init__(self, problem: RmsNormProblem, seed: int, sets: int, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        self._rows = torch.randperm(problem.tokens, generator=generator, device=device)
        shape = (2, sets, problem.hidden_size)
        bits = torch.randint(2, shape, generator=generator, dtype=torch.int8, device=device)
        self._of_x, self._of_w = 2 * bits - 1

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        x, w = plain
        self._move(x, self._of_x, into[0])
        torch.mul(w, self._of_w.to(w.dtype), out=into[1])

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        self._move(plain[0], self._of_x * self._of_w, into[0])

    def _move(self, plain: Tensor, signs: Tensor, into: Tensor) -> None:
        torch.mul(plain[self._rows], signs.unsqueeze(1).to(plain.dtype), out=into)
