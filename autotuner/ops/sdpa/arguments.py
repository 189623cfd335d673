"""The arguments of torch's scaled_dot_product_attention, and two more. An export has a copy of this file: it
imports nothing of autotuner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    key_lengths: Tensor | None = None,
    corner: str = "top_left",
) -> tuple[tuple[Tensor, ...], dict[str, Any], dict[str, Any]]:
    """Q, K and V with the lengths of the keys where there are any; those of the options that change what is computed;
    and what says the same once more for torch alone: a mask beside lengths or a corner. A model may say what is so
    anyway: the usual scale, or groups where there are none. Raises ValueError for a corner that there is not, and
    TypeError for what is no tensor."""
    for name, each in (("query", query), ("key", key), ("value", value)):
        if not hasattr(each, "requires_grad"):
            raise TypeError(f"{name} must be a tensor, not {type(each).__name__}")
    options: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    if attn_mask is not None:
        described = key_lengths is not None or (is_causal and corner != "top_left")
        (beside if described else options)["attn_mask"] = attn_mask
    if dropout_p:
        options["dropout_p"] = dropout_p
    if is_causal:
        options["is_causal"] = True
        if corner not in ("top_left", "bottom_right"):
            raise ValueError(f"corner is {corner!r}, expected top_left or bottom_right")
        if corner != "top_left":
            options["corner"] = corner
    if scale is not None and not is_usual(scale, query):
        options["scale"] = scale
    if enable_gqa and not _is_idle(query, key, value):
        options["enable_gqa"] = True
    tensors = (query, key, value)
    return tensors if key_lengths is None else (*tensors, key_lengths), options, beside


def is_usual(scale: float, query: Tensor) -> bool:
    """Whether a scale is the one that is taken where none is given. In arithmetic that torch.compile follows."""
    return scale > 0 and query.dim() > 0 and abs(scale * scale * query.size(-1) - 1) < 2e-6


def _is_idle(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether there are no groups for torch to make: its heads are the third dimension from the end, whatever the
    number of dimensions, and K and V are grouped each by itself."""
    return query.dim() == key.dim() == value.dim() == 4 and query.size(1) == key.size(1) == value.size(1)
