"""Inputs of an op as bytes, drawn without torch: for processes that run under a sanitizer."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autotuner.ops import op_of
from autotuner.values.problem import ITEM_BYTES, Problem, Shape

FILLED = 0xFF
"""The byte of an output before a launch: a NaN in every element type."""


def draw(problem: Problem) -> tuple[bytes, ...]:
    """Each input, standard normal, in the problem's element type."""
    generator = np.random.default_rng(1)
    shapes = op_of(problem).input_shapes(problem)
    return tuple(_as_bytes(generator.standard_normal(math.prod(shape), np.float32), problem.dtype) for shape in shapes)


def output_bytes(problem: Problem) -> tuple[int, ...]:
    """The size of each output."""
    return tuple(_size(shape, problem.dtype) for shape in op_of(problem).output_shapes(problem))


def _size(shape: Shape, dtype: str) -> int:
    return math.prod(shape) * ITEM_BYTES[dtype]


def _as_bytes(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "bfloat16":  # the upper half of a float32, on a machine that is little-endian
        return values.view(np.uint16)[1::2].tobytes()
    return values.astype(dtype).tobytes()
