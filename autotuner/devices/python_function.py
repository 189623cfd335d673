"""The call of a variant that is a function of Python: tensors where a library's caller says, in and out."""

import ctypes
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from autotuner.forge.languages import python
from autotuner.forge.loaded_variant import RAISED, raised
from autotuner.ops import OPS
from autotuner.ops.functions import called, wrong_answer
from autotuner.ops.op import Input, Output, shape_of
from autotuner.values.problem import Problem
from autotuner.values.variant import Value

KNOWN = 4096
"""Calls whose tensors are kept: a race has fewer input sets, and makes none under the clock."""


class Call(ctypes.Structure):
    """at_call of kernels/abi/variant.h."""

    _fields_ = (
        ("inputs", ctypes.c_void_p * 8),
        ("outputs", ctypes.c_void_p * 4),
        ("input_strides", ctypes.c_int64 * 4 * 8),
        ("output_strides", ctypes.c_int64 * 4 * 4),
        ("dim", ctypes.c_int64 * 8),
        ("scalar", ctypes.c_double * 4),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
    )


def caller(text: str) -> Callable[[int], int]:
    """What a library calls with the address of a call: returns the variant's status."""
    said = json.loads(text)
    function = python.function(said["python"], said["path"])
    like, known = OPS[said["op"]].usual(said["compiled"]), dict[bytes, Callable[[], int]]()
    on_device = said["device"] == "cuda"

    def launch(address: int) -> int:
        call = Call.from_address(address)
        key = bytes(call)
        made = known.get(key)
        if made is None:
            if len(known) >= KNOWN:
                known.clear()
            made = known[key] = _prepared(function, call, like, said["parameters"], on_device)
        return made()

    return launch


def _prepared(
    function: Callable[..., Any], call: Call, like: Problem, parameters: Mapping[str, Value], on_device: bool
) -> Callable[[], int]:
    """The function on the tensors of a call, which lie where the call says, on its stream."""
    op = OPS[like.op]
    said = [each for each in zip(like.SCALARS, call.scalar, strict=False) if each[0] in type(like).model_fields]
    given = {name: type(getattr(like, name))(value) for name, value in said}
    problem = like.sized(tuple(call.dim[: len(like.DIMS)])).model_copy(update=given)
    lies = zip(op.inputs(problem), call.inputs, call.input_strides, strict=False)
    inputs = tuple(_tensor(each, problem, address, strides, on_device) for each, address, strides in lies)
    lies_out = zip(op.outputs(problem), call.outputs, call.output_strides, strict=False)
    outputs = tuple(_tensor(each, problem, address, strides, on_device) for each, address, strides in lies_out)
    arguments, options = called(function, problem, inputs)
    stream = (call.stream or 0) if on_device else None

    def run() -> int:
        try:
            with torch.no_grad(), _on(stream):
                found = function(*arguments, **options, **parameters)
                wrong = wrong_answer(found, problem, inputs)
                if wrong is None:
                    for output, each in zip(outputs, found if isinstance(found, tuple) else (found,), strict=True):
                        output.copy_(each)
                    return 0
        except Exception as error:  # whatever the function raises is its fault
            said = " ".join(f"{type(error).__name__}: {error}".split())
            wrong = f"the function raised {said[:300]}"
        raised[:] = [wrong]
        return RAISED

    return run


def _on(stream: int | None) -> AbstractContextManager[Any]:
    """torch's kernels go to that stream of the current device; None: they go to none."""
    if stream is None or torch.cuda.current_stream().cuda_stream == stream:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream))


class _Memory:
    """Device memory as torch takes it from others: a row of integers, as no such interface knows every element type."""

    def __init__(self, address: int, count: int, item: int) -> None:
        about = {"shape": (count,), "typestr": f"<i{item}", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = about


def _tensor(
    about: Input | Output, problem: Problem, address: int, strides: ctypes.Array[ctypes.c_int64], on_device: bool
) -> Tensor:
    """The tensor at an address of this process, or of the current device. It keeps nothing alive: the call does."""
    dtype = getattr(torch, about.dtype)
    shape = shape_of(about, problem)
    steps = tuple(strides[: len(shape)])
    size = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    if on_device:
        flat = torch.as_tensor(_Memory(address, size, dtype.itemsize), device="cuda").view(dtype)
    else:
        flat = torch.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype=dtype)
    return flat.as_strided(shape, steps)
