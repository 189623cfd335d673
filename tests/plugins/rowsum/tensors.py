"""Row sums in tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from autotuner.ops.op import Baseline
from autotuner.ops.tensors import DTYPES, Symmetry, Tensors, shifted
from autotuner.values.problem import Problem

ORDERS = 8
"""Orders of summation in which the emulation is computed."""


def _sum(x: Tensor) -> Tensors:
    return (x.sum(-1),)


class RowSumSymmetry:
    """The rows of every set are permuted alike, and each set has a sign."""

    def __init__(self, problem: Problem, seed: int, sets: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._rows = torch.randperm(problem.shape[0], generator=generator)
        self._signs = 2.0 * torch.randint(2, (sets,), generator=generator) - 1.0

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        self._move(plain[0], into[0])

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        self._move(plain[0], into[0])

    def _move(self, plain: Tensor, into: Tensor) -> None:
        signs = self._signs.view(-1, *(1 for _ in plain.shape))
        torch.mul(plain[self._rows], signs.to(plain.dtype), out=into)


BASELINES = {"sum": Baseline(lambda problem: _sum, frozenset({"cpu"}))}
PEER = "sum"
BETWEEN = {"cpu": "sum"}


def inputs(problem: Problem, distribution: str, seed: int) -> Tensors:
    drawn = torch.randn(problem.shape, generator=torch.Generator().manual_seed(seed))
    return ((drawn * (1e4 if distribution == "huge" else 1)).to(DTYPES[problem.dtype]),)


def fresh(problem: Problem, inputs: Tensors, seed: int) -> Tensors:
    return shifted(inputs, seed)


def symmetry(problem: Problem, seed: int, sets: int, device: torch.device) -> Symmetry:
    return RowSumSymmetry(problem, seed, sets)


def outputs(problem: Problem, inputs: Tensors) -> Tensors:
    return (torch.empty_like(inputs[0][:, 0]),)


def reference(problem: Problem, inputs: Tensors) -> Tensors:
    return (inputs[0].double().sum(-1),)


def emulation(problem: Problem, inputs: Tensors) -> Tensors:
    return (_summed(inputs[0], range(inputs[0].shape[1])),)


def reordered(problem: Problem, inputs: Tensors, exact: Tensors) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
    for order in range(1, ORDERS):
        places = torch.randperm(inputs[0].shape[1], generator=torch.Generator().manual_seed(order))
        yield 0, (), _summed(inputs[0], places.tolist())


def _summed(x: Tensor, order: range | list[int]) -> Tensor:
    """One number after the other, in float32."""
    total = torch.zeros(x.shape[0])
    for place in order:
        total += x[:, place].float()
    return total.double()
