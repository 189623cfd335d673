"""Inputs of an op as bytes, drawn without torch: for processes that run under a sanitizer."""

import math
from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from autotuner.ops import op_of
from autotuner.ops.op import Input, Output, shape_of
from autotuner.values.problem import ITEM_BYTES, Problem, Shape

FILLED = 0xFF
"""The byte of an output before a launch: a NaN in every element type."""


def strides_of(of: Input | Output, shape: Shape) -> tuple[int, ...]:
    """A dense tensor's strides, in elements. Rows that must begin at multiples of 16 bytes, and would not, are all the
    first one."""
    if of.strided and shape[-1] * ITEM_BYTES.get(of.dtype, 1) % 16:
        return (*[0] * (len(shape) - 1), 1)
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def draw(problem: Problem) -> tuple[bytes, ...]:
    """Each input, dense: standard normal in its element type, or integers from 1 on."""
    generator = np.random.default_rng(1)

    def drawn(each: Input) -> bytes:
        shape = shape_of(each, problem)
        if each.most is not None:
            return generator.integers(1, getattr(problem, each.most) + 1, shape).astype(each.dtype).tobytes()
        return _as_bytes(generator.standard_normal(math.prod(shape), np.float32), each.dtype)

    return tuple(drawn(each) for each in op_of(problem).inputs(problem))


def output_bytes(problem: Problem) -> tuple[int, ...]:
    """The size of each output."""
    return tuple(math.prod(shape_of(one, problem)) * ITEM_BYTES[one.dtype] for one in op_of(problem).outputs(problem))


def bare(
    problem: Problem, tensors: Iterable[Input | Output], addresses: Iterable[int], device: str
) -> tuple[SimpleNamespace, ...]:
    """Tensors of the problem at these addresses, as the binding asks for them, where there is no torch."""

    def tensor(each: Input | Output, address: int) -> SimpleNamespace:
        shape, there = shape_of(each, problem), SimpleNamespace(type=device)
        stride = partial(strides_of, each, shape)
        return SimpleNamespace(data_ptr=lambda: address, dtype=each.dtype, device=there, shape=shape, stride=stride)

    return tuple(map(tensor, tensors, addresses))


def _as_bytes(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "bfloat16":  # the upper half of a float32, on a machine that is little-endian
        return values.view(np.uint16)[1::2].tobytes()
    if dtype == "float8_e4m3fn":  # sign, four bits of an exponent that is 120 less, and three of its digits, cut off
        bits = values.view(np.uint32)
        size = ((bits >> 20 & 0x7FF).astype(np.int32) - (120 << 3)).clip(0, 0x7E)
        return (size | (bits >> 24 & 0x80).astype(np.int32)).astype(np.uint8).tobytes()
    return values.astype(dtype).tobytes()
