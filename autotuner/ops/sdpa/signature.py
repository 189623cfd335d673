"""torch's scaled_dot_product_attention, with the arguments that variants serve beside its own: the one statement of the
op's signature. A package has a copy of this file: it imports nothing of autotuner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as FUNCTION

NAME, TITLE = "attention", "Attention"
TENSORS, MORE = ("query", "key", "value"), ("key_lengths",)
OPTIONS, BESIDE = ("is_causal", "enable_gqa", "corner"), ("attn_mask",)
AUTOCAST = True
CORNERS = ("top_left", "bottom_right")


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
    corner: Literal["top_left", "bottom_right"] = "top_left",
) -> tuple[tuple[Tensor, ...], dict[str, Any], dict[str, Any]]:
    """Q, K and V with the lengths of the keys where there are any; those of the options that change what is computed;
    and what says the same once more for torch alone: a mask beside lengths or a corner.

    Q is (batch, heads, seq_q, head_dim), K and V are (batch, heads_kv, seq_k, head_dim). `key_lengths`, (batch,) of
    int32, says how many keys there are of the seq_k that there is room for, as in a static cache or a padded batch.
    With `corner="bottom_right"` the last row of a causal mask sees all keys there are.

    A model may say what is so anyway: the usual scale, or groups where there are none. Raises ValueError for a corner
    that there is not, and TypeError for what is no tensor.
    """
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
        if corner not in CORNERS:
            raise ValueError(f"corner is {corner!r}, expected top_left or bottom_right")
        if corner != "top_left":
            options["corner"] = corner
    if scale is not None and not _is_usual(scale, query):
        options["scale"] = scale
    if enable_gqa and not _is_idle(query, key, value):
        options["enable_gqa"] = True
    tensors = (query, key, value)
    return tensors if key_lengths is None else (*tensors, key_lengths), options, beside


def _is_usual(scale: float, query: Tensor) -> bool:
    """Whether a scale is the one that is taken where none is given. In arithmetic that torch.compile follows."""
    return scale > 0 and query.dim() > 0 and abs(scale * scale * query.size(-1) - 1) < 2e-6


def _is_idle(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether there are no groups for torch to make: its heads are the third dimension from the end, whatever the
    number of dimensions, and K and V are grouped each by itself."""
    return query.dim() == key.dim() == value.dim() == 4 and query.size(1) == key.size(1) == value.size(1)


def called(tensors: Sequence[Tensor], options: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of these tensors with these options, as `arguments` takes it."""
    return tuple(tensors[:3]), {**dict(zip(MORE, tensors[3:], strict=False)), **options}


def compute(tensors: Sequence[Tensor], options: Mapping[str, Any], beside: Mapping[str, Any]) -> Tensor:
    """What torch computes for such a call; O is as Q. A mask beside lengths or a corner is taken for what they say."""
    query, key, value, *lengths = tensors
    said = dict(options)
    bottom = said.pop("corner", "top_left") == "bottom_right" and said.get("is_causal", False)
    if bottom and not lengths and not beside:
        if query.shape[-2] == 1:
            bottom = said["is_causal"] = False  # the last row sees all
        bottom = bottom and query.shape[-2] != key.shape[-2]
    if lengths or bottom:
        causal = bool(said.pop("is_causal", False))
        mask = beside.get("attn_mask")
        if mask is None:
            corner = CORNERS[int(bottom)]
            mask = seen(query.shape[-2], key.shape[-2], causal, corner, lengths[0] if lengths else None, query.device)
        said["attn_mask"] = mask
    return FUNCTION(query, key, value, **said)


def empty(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
    """An empty O, which lies as Q does where it has its sizes."""
    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query)
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def seen(seq_q: int, seq_k: int, causal: bool, corner: str, lengths: Tensor | None, device: torch.device) -> Tensor:
    """Which keys each row sees, of a shape that expands to (batch, heads, seq_q, seq_k); lengths or a causal mask there
    must be. At the bottom right the last row sees all keys there are: as many as the lengths say, where there are
    lengths."""
    keys = torch.arange(seq_k, device=device)
    ends = torch.full((1, 1, 1, 1), seq_k, device=device) if lengths is None else lengths.view(-1, 1, 1, 1)
    found = keys < ends
    if causal:
        rows = torch.arange(seq_q, device=device).view(-1, 1)
        last = rows if corner == "top_left" else rows + ends - seq_q
        found = found & (keys <= last)
    return found
