"""Calls in words, and what may be made of them before they are looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from autotuner.ops.tensors import Tensors
from autotuner.values.problem import Problem
from autotuner.values.validation import explanation

GRADIENT = "it needs a gradient, and only the forward is computed; call it under torch.no_grad()"
NO_GRADIENT = f'{GRADIENT}, or load with gradients="torch"'
"""What is said where a gradient is refused."""


def as_dense(tensors: Tensors) -> Tensors:
    """Of the same sizes and element types, dense; without content where they were not."""
    return tuple(
        each if each.is_contiguous() else torch.empty_like(each, device="meta").contiguous() for each in tensors
    )


def dense(tensors: Tensors) -> Tensors:
    """The same with their content, copied where they were not dense."""
    return tuple([each.contiguous() for each in tensors])


def described(tensors: Tensors, options: Mapping[str, Any]) -> str:
    """A call in one line: sizes, element type, what else was given."""
    sizes = " ".join("nested" if each.is_nested else "x".join(map(str, each.shape)) for each in tensors)
    said = [f"{name}={_short(value)}" for name, value in options.items()]
    return " ".join([sizes, str(tensors[0].dtype).removeprefix("torch."), *said])


def _short(value: object) -> str:
    return f"{'x'.join(map(str, value.shape))} {value.dtype}" if isinstance(value, Tensor) else str(value)


def why_not(error: ValueError, problem: type[Problem]) -> str:
    """Why a call is none of an op's problems, in one line."""
    said = explanation(error, problem) if isinstance(error, ValidationError) else str(error)
    return " ".join(said.split())
