"""A loaded export as an op of torch.library: what torch.compile keeps as one node of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from autotuner.devices import DEVICES
from autotuner.inference.calls import NO_GRADIENT
from autotuner.inference.loaded import Loaded
from autotuner.ops.op import TorchFunction
from autotuner.ops.surroundings import as_autocast, needs_gradient
from autotuner.values.errors import InputError

_LIVE: dict[str, Loaded] = {}
"""By the name of its op: which of those that were loaded answers it. The last one of a table and its settings does."""
_LIBRARY = torch.library.Library("autotuner", "FRAGMENT")


def registered(loaded: Loaded, digest: str) -> Any:
    """The op of torch.library for a table and its settings: the same name in every process, for what torch.compile
    keeps. Its result lies as `TorchFunction.empty` says, whoever serves it.

    torch.library.custom_op would do, and costs twice of what a call of ours takes. So the op is defined by its parts.
    It has no backward. As torch would not say so of an op without one, the op itself refuses where a gradient is
    wanted.
    """
    function, short = loaded.function, f"{loaded.table.op}_{digest}"
    known = short in _LIVE
    _LIVE[short] = loaded
    if not known:
        _define(short, function)
    return _op(short)


def _op(short: str) -> Any:
    return getattr(torch.ops.autotuner, short).default


def _define(short: str, function: TorchFunction) -> None:
    def forward(*tensors: Tensor, **options: Any) -> Tensor:
        tensors = _given(tensors)
        _refuse_gradients(tensors)
        tensors, said, beside = _said(function, tensors, options) if options else (tensors, options, options)
        loaded = _LIVE[short]
        found, by_variant = loaded.answer(tensors, said, beside)
        if by_variant and not loaded.copies:
            return found
        return _laid(found, function, tensors, options)

    def fake(*tensors: Tensor, **options: Any) -> Tensor:
        tensors = _given(tensors)
        _refuse_gradients(tensors)
        return function.empty(*tensors, **options)

    _LIBRARY.define(short + function.schema)
    for key in filter(None, (kind.dispatch_key for kind in DEVICES.values())):
        _LIBRARY.impl(short, forward, key)
        _LIBRARY.impl(short, as_autocast(lambda *args, **options: _op(short)(*args, **options)), f"Autocast{key}")
    _LIBRARY.impl(short, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"autotuner::{short}", fake, lib=_LIBRARY)


def _given(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """Without those that were left out."""
    return tensors if tensors[-1] is not None else tuple(each for each in tensors if each is not None)  # type: ignore[return-value]


def _refuse_gradients(tensors: tuple[Tensor, ...]) -> None:
    if needs_gradient(tensors):
        raise InputError(NO_GRADIENT)


def _said(
    function: TorchFunction, tensors: tuple[Tensor, ...], options: Mapping[str, Any]
) -> tuple[tuple[Tensor, ...], dict[str, Any], dict[str, Any]]:
    """As `TorchFunction.arguments` gives them: without options that change nothing."""
    if function.beside.isdisjoint(options):
        return tensors, {name: value for name, value in options.items() if value}, {}
    return function.arguments(**function.called(tensors, options))


def _laid(found: Tensor, function: TorchFunction, tensors: tuple[Tensor, ...], options: Mapping[str, Any]) -> Tensor:
    """The same numbers, laid as the op says."""
    if found.is_contiguous() and all(each.is_contiguous() for each in tensors):
        return found
    lies = function.empty(*[torch.empty_like(each, device="meta") for each in tensors], **options)
    if found.stride() == lies.stride():
        return found
    return torch.empty_strided(lies.shape, lies.stride(), dtype=found.dtype, device=found.device).copy_(found)
