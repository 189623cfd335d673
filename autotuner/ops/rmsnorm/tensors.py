"""rmsnorm in tensors: inputs by distribution, float64 reference, low-precision emulation, torch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from autotuner.ops import compiled
from autotuner.ops.op import Baseline
from autotuner.ops.rmsnorm.problem import RmsNormProblem
from autotuner.ops.tensors import DTYPES, Symmetry, Tensors, shifted
from autotuner.values.problem import Problem

ORDERS = 8
"""Orders of summation in which the float32 emulation is computed, as a single one may be lucky."""
ROWS = 32
"""Rows of a case in which that is done."""
HUGE = {"float32": 2.0**50, "bfloat16": 2.0**50, "float16": 2.0**13}
TINY = {"float32": 2.0**-50, "bfloat16": 2.0**-50, "float16": 2.0**-12}
"""What X is multiplied by: float32 still holds the sum of the squares of 16384 of them."""
GIANT = {"float32": 2.0**15, "bfloat16": 2.0**15, "float16": 2.0**15}


def _plain(problem: Problem) -> Callable[..., Tensors]:
    of = cast(RmsNormProblem, problem)

    def forward(x: Tensor, w: Tensor) -> Tensors:
        return (rms_norm(x, (of.hidden_size,), w, of.eps),)

    return forward


class _RmsNorm(torch.nn.Module):
    def __init__(self, problem: RmsNormProblem) -> None:
        super().__init__()
        self._problem = problem

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return rms_norm(x, (self._problem.hidden_size,), w, self._problem.eps)


def module(problem: Problem, device: str) -> torch.nn.Module:
    """What the compiled baseline is made of."""
    return _RmsNorm(cast(RmsNormProblem, problem))


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


BASELINES = {
    "rms_norm": Baseline(_plain, frozenset({"cpu", "cuda"})),
    "compiled": Baseline(compiled.forward, frozenset({"cpu", "cuda"}), is_made=compiled.is_made),
}
PEER = "rms_norm"
BETWEEN = {"cpu": "rms_norm", "cuda": "rms_norm"}


def fresh(problem: Problem, inputs: Tensors, seed: int) -> Tensors:
    """Other inputs, drawn as these."""
    return shifted(inputs, seed)


def symmetry(problem: RmsNormProblem, seed: int, sets: int, device: torch.device) -> Symmetry:
    """Of each set one."""
    return RmsNormSymmetry(problem, seed, sets, device)


def outputs(problem: Problem, inputs: Tensors) -> Tensors:
    """An empty Y."""
    return (torch.empty_like(inputs[0]),)


def reference(problem: RmsNormProblem, inputs: Tensors) -> Tensors:
    """Y in float64."""
    x, w = (each.double() for each in inputs)
    mean = x.square().mean(-1, keepdim=True)
    return (x / (mean + problem.eps).sqrt() * w,)


def emulation(problem: RmsNormProblem, inputs: Tensors) -> Tensors:
    """What the textbook algorithm gives, in float64."""
    return (_emulated(problem, *inputs),)


def reordered(
    problem: RmsNormProblem, inputs: Tensors, exact: Tensors
) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
    """Only in float32 the sums are what rounds; in rows all over the case."""
    if problem.dtype != "float32":
        return
    x, w = inputs
    rows = torch.linspace(0, x.shape[0] - 1, min(ROWS, x.shape[0]), device=x.device).long()
    for order in range(1, ORDERS):
        columns = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(order))
        yield 0, (rows,), _emulated(problem, x[rows], w, columns.to(x.device))


def inputs(problem: RmsNormProblem, distribution: str, seed: int) -> Tensors:
    """X and W, drawn in float32 and rounded to the problem's dtype; on the CPU. Same seed, same tensors."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(problem.shape, generator=generator)
    w = torch.randn(problem.hidden_size, generator=generator)
    each = (problem.tokens, 1)
    if distribution == "magnitudes":
        x = x * 2.0 ** torch.randint(-10, 11, each, generator=generator)
    elif distribution == "giant":
        x = x.scatter(1, torch.randint(problem.hidden_size, each, generator=generator), GIANT[problem.dtype])
    elif distribution == "eps":
        x = x * problem.eps**0.5
    elif distribution == "zeros":
        x[1::2] = 0
    elif distribution == "huge":
        x = x * HUGE[problem.dtype]
    elif distribution == "tiny":
        x = x * TINY[problem.dtype]
    elif distribution == "equal":
        x = x[:, :1].expand_as(x)
    dtype = DTYPES[problem.dtype]
    return x.to(dtype).contiguous(), w.to(dtype)


def _emulated(problem: RmsNormProblem, x: Tensor, w: Tensor, order: Tensor | None = None) -> Tensor:
    """What the textbook algorithm gives, in float64: squares and their sum in float32, in the order of the columns or
    another one; X times the reciprocal root is rounded to the dtype, and so is its product with W."""
    dtype = DTYPES[problem.dtype]
    squares = x.float().square()
    factor = torch.rsqrt(_sums(squares if order is None else squares[:, order]) / x.shape[-1] + problem.eps)
    normal = (x.float() * factor).to(dtype)
    return (normal.float() * w.float()).to(dtype).double()


def _sums(terms: Tensor) -> Tensor:
    """The sum of each row, one float32 after the other: (rows, 1)."""
    last = np.add.accumulate(terms.cpu().numpy(), axis=-1)[:, -1:]
    return torch.from_numpy(np.ascontiguousarray(last)).to(terms.device)
