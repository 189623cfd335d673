"""rmsnorm in tensors: inputs by distribution, low-precision emulation, torch's own."""

from typing import cast

import torch
from torch.nn.functional import rms_norm

from autotuner.ops.op import OpTensors
from autotuner.ops.rmsnorm import RmsNormProblem
from autotuner.ops.row_tensors import RowTensors
from autotuner.ops.tensors import DTYPES, Tensors, sums_in_order
from autotuner.values.problem import Problem

HUGE = {"float32": 2.0**50, "bfloat16": 2.0**50, "float16": 2.0**13}
TINY = {"float32": 2.0**-50, "bfloat16": 2.0**-50, "float16": 2.0**-12}
"""What X is multiplied by: float32 still holds the sum of the squares of 16384 of them."""
GIANT = 2.0**15


class RmsNormTensors(RowTensors):
    """Of the formula as torch has it."""

    def inputs(self, problem: Problem, distribution: str, seed: int) -> Tensors:
        """X and W, drawn in float32 and rounded to the problem's dtype; on the CPU. Same seed, same tensors."""
        generator, of = torch.Generator().manual_seed(seed), cast(RmsNormProblem, problem)
        x = torch.randn(of.shape, generator=generator)
        w = torch.randn(of.hidden_size, generator=generator)
        each = (of.tokens, 1)
        if distribution == "magnitudes":
            x = x * 2.0 ** torch.randint(-10, 11, each, generator=generator)
        elif distribution == "giant":
            x = x.scatter(1, torch.randint(of.hidden_size, each, generator=generator), GIANT)
        elif distribution == "eps":
            x = x * of.eps**0.5
        elif distribution == "zeros":
            x[1::2] = 0
        elif distribution == "huge":
            x = x * HUGE[of.dtype]
        elif distribution == "tiny":
            x = x * TINY[of.dtype]
        elif distribution == "equal":
            x = (x[:, :1].sign() * (0.5 + 1.5 * torch.rand(each, generator=generator))).expand_as(x)
            w = 2.0 ** torch.randint(-3, 4, w.shape, generator=generator)
        dtype = DTYPES[of.dtype]
        return x.to(dtype).contiguous(), w.to(dtype)

    def emulation(self, problem: Problem, inputs: Tensors) -> Tensors:
        """What the textbook algorithm gives, in float64: squares and their sum in float32, in the order of the columns;
        X times the reciprocal root is rounded to the dtype, and so is its product with W."""
        (x, w), dtype, (eps,) = inputs, DTYPES[problem.dtype], problem.scalars
        factor = torch.rsqrt(sums_in_order(x.float().square()) / x.shape[-1] + eps)
        normal = (x.float() * factor).to(dtype)
        return ((normal.float() * w.float()).to(dtype).double(),)


TENSORS: OpTensors = RmsNormTensors(RmsNormProblem, lambda x, w, eps: rms_norm(x, w.shape, w, eps), "rms_norm")
