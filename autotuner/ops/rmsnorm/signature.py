"""torch's rms_norm: the one statement of the op's signature. A package has a copy of this file: it imports nothing of
autotuner."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm as FUNCTION

NAME, TITLE = "rms_norm", "The root mean square norm"
TENSORS, MORE = ("input", "weight"), ()
OPTIONS, BESIDE = ("eps",), ()
AUTOCAST = False


def arguments(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[tuple[Tensor, ...], dict[str, Any], dict[str, Any]]:
    """X and W, and eps; X is (..., hidden_size), W is (hidden_size,). What no variant serves is an option of its name.
    Raises TypeError for what is no tensor, or no shape."""
    for name, each in (("input", input), ("weight", weight)):
        if each is not None and not hasattr(each, "requires_grad"):
            raise TypeError(f"{name} must be a tensor, not {type(each).__name__}")
    if not isinstance(normalized_shape, tuple | list):
        raise TypeError(f"normalized_shape must be a tuple such as (4096,), not {type(normalized_shape).__name__}")
    options: dict[str, Any] = {}
    if eps is None:
        options["no_eps"] = True
    else:
        options["eps"] = eps
    if weight is None:
        return (input,), {**options, "no_weight": True, "normalized_shape": normalized_shape}, {}
    if tuple(normalized_shape) != tuple(weight.shape):
        options["normalized_shape"] = normalized_shape
    if weight.dtype != input.dtype:
        options["dtype_of_weight"] = weight.dtype
    return (input, weight), options, {}


def called(tensors: Sequence[Tensor], options: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of these tensors with these options, as `arguments` takes it."""
    weight = tensors[1] if len(tensors) > 1 else None
    shape = options.get("normalized_shape", None if weight is None else weight.shape)
    return (tensors[0], shape, weight, options.get("eps")), {}


def compute(tensors: Sequence[Tensor], options: Mapping[str, Any], beside: Mapping[str, Any]) -> Tensor:
    """What torch computes for such a call; Y is as X."""
    given, _ = called(tensors, options)
    return FUNCTION(*given)


def empty(input: Tensor, *_: Any, **__: Any) -> Tensor:
    """An empty Y, which lies as X does."""
    return torch.empty_like(input)
