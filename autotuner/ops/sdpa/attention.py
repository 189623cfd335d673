"""torch's scaled_dot_product_attention with the arguments that variants serve beside its own, computed by torch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import handle_torch_function, has_torch_function

from autotuner.ops.sdpa.masks import seen


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
    cache or a padded batch. With `corner="bottom_right"` the last row of a causal mask sees all keys there are.

    Raises ValueError for `attn_mask` beside them.
    """
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
        if attn_mask is not None:
            raise ValueError("attn_mask stands for all that is masked: leave out key_lengths and corner")
        last = "bottom_right" if bottom else "top_left"
        attn_mask = seen(query.shape[-2], key.shape[-2], is_causal, last, key_lengths, query.device)
        is_causal = False
    return scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
