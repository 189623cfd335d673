"""What must hold of attention from FP8, without a reference (G3)."""

import math
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from autotuner.ops.op import Relation
from autotuner.ops.sdpa import invariants as attention, tensors as exactly
from autotuner.ops.sdpa.distributions import laid_out
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.sdpa_fp8.tensors import dequantised, quantised_as_asked
from autotuner.ops.tensors import Tensors, first_outputs, moved, so_many_times
from autotuner.values.problem import Problem

DECIBELS = 25.0
"""How far the noise must be below the signal where normal inputs are quantised, as torchao asks: the inputs' own
rounding leaves about 27."""


def descales(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """A power of two that moves from one factor to another changes no bit, and one of V comes out as it is."""
    q, k, v, of_q, of_k, of_v, *lengths = inputs
    turned = (q, k, v, 4 * of_q, of_k / 4, of_v, *lengths)
    yield Relation(turned, first_outputs, "4 times q_descale with a quarter of k_descale changes O")
    larger = (q, k, v, of_q, of_k, 4 * of_v, *lengths)
    yield Relation(larger, so_many_times(4), "4 times v_descale does not give exactly 4 O")


def ones(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Q = 0 and V = 1 give O = 1: all weights are equal, no rounding changes them, and they sum to 1."""
    q, k, v, of_q, of_k, of_v, *lengths = inputs
    none, one = (torch.full(x.shape, value, device=x.device).to(x.dtype) for x, value in ((q, 0.0), (v, 1.0)))
    given = (none, k, one, of_q, of_k, torch.ones_like(of_v), *lengths)
    within = torch.finfo(torch.bfloat16).eps
    yield Relation(
        given, attention.are_ones, "Q = 0 and V = 1 do not give O = 1: the weights do not sum to 1", within=within
    )


def spread(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """A NaN reaches all that the definition computes from it, and no other slice: FP8 has no infinity."""
    return attention.spread(problem, inputs, seed, (math.nan,), dequantised)


def quantising(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Normal inputs that are quantised head by head give what they give unquantised, but for DECIBELS."""
    of = cast(SdpaFp8Problem, problem)
    dense = of.model_copy(update={"layout": "bhsd"})
    q, k, v, *lengths = moved(exactly.inputs(dense, "randn", seed), inputs[0].device)
    pairs = quantised_as_asked(of, q, k, v)
    want = exactly.reference(dense, (q, k, v, *lengths))[0]

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        noise = torch.linalg.vector_norm(other[0].double() - want) / torch.linalg.vector_norm(want)
        return noise.reshape(1), torch.zeros(1, dtype=torch.float64, device=noise.device)

    given = (*laid_out(of, "randn", *(x for x, _ in pairs)), *(descale for _, descale in pairs), *lengths)
    detail = f"quantised inputs give less than {DECIBELS:g} dB of signal over noise"
    yield Relation(given, compared, detail, within=10 ** (-DECIBELS / 20))
