"""torch's scaled_dot_product_attention with the arguments that variants serve beside its own, computed by torch. An
export has a copy of this file: it imports nothing of autotuner."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import handle_torch_function, has_torch_function


def attention(
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
) -> Tensor:
    """Q is (batch, heads, seq_q, head_dim), K and V are (batch, heads_kv, seq_k, head_dim); O is as Q.

    `key_lengths`, (batch,) of int32, says how many keys there are of the seq_k that there is room for, as in a static
    cache or a padded batch. With `corner="bottom_right"` the last row of a causal mask sees all keys there are. An
    `attn_mask` beside them must say the same, with `is_causal`: torch takes it instead of a mask made here. Raises
    ValueError for a corner that there is not.
    """
    if is_causal and corner not in ("top_left", "bottom_right"):
        raise ValueError(f"corner is {corner!r}, expected top_left or bottom_right")
    given = (query, key, value) if key_lengths is None else (query, key, value, key_lengths)
    if has_torch_function(given):  # autotuner.record() hears of the call
        found: Tensor = handle_torch_function(
            attention,
            given,
            query,
            key,
            value,
            attn_mask=attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
            key_lengths=key_lengths,
            corner=corner,
        )
        return found
    bottom = is_causal and corner == "bottom_right"
    if key_lengths is not None or bottom:
        if attn_mask is None:
            last = "bottom_right" if bottom else "top_left"
            attn_mask = seen(query.shape[-2], key.shape[-2], is_causal, last, key_lengths, query.device)
        is_causal = False
    return scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


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
