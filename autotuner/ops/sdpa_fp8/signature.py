"""torch's _scaled_dot_product_attention_quantized, with the arguments that variants serve beside its own: the one
statement of the op's signature. A package has a copy of this file: it imports nothing of autotuner."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

NAME, TITLE = "attention_fp8", "Attention from FP8"
DESCALES = ("q_descale", "k_descale", "v_descale")
TENSORS, MORE = ("query", "key", "value"), (*DESCALES, "key_lengths")
OPTIONS, BESIDE = ("is_causal", "corner"), ()
AUTOCAST = False


def arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    q_descale_type: int = 0,
    k_descale_type: int = 0,
    v_descale_type: int = 0,
    *,
    key_lengths: Tensor | None = None,
    corner: Literal["top_left", "bottom_right"] = "top_left",
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Q, K and V, and behind them the tensors that MORE names, as far as there are any; and those of the options that
    change what is computed. O is bfloat16, or of Q's element type where that has 16 bits.

    Q is (batch, heads, seq_q, head_dim), K and V are (batch, heads_kv, seq_k, head_dim), all float8_e4m3fn; Q may be
    bfloat16 or float16, on a cache of FP8. A number of them stands for itself times the descale of its head, float32
    of (batch, heads_kv), or of what expands to it, as one number for all. `key_lengths` and `corner` are what they are
    in attention from 16 bits. Raises ValueError for a corner that there is not and for lengths or descales of another
    shape, and TypeError for what is no tensor, or no number.
    """
    more: list[Tensor | None] = [q_descale, k_descale, v_descale, key_lengths]
    for name, each in zip((*TENSORS, *MORE), (query, key, value, *more), strict=True):
        if not hasattr(each, "requires_grad") and not (each is None and name in MORE):
            raise TypeError(f"{name} must be a tensor, not {type(each).__name__}")
    options: dict[str, Any] = {}
    if is_causal:
        _require_like("is_causal", is_causal, "True or False", "__bool__")
        options["is_causal"] = True
        if corner not in ("top_left", "bottom_right"):
            raise ValueError(f"corner is {corner!r}, expected top_left or bottom_right")
        if corner != "top_left":
            options["corner"] = corner
    if scale is not None:
        _require_like("scale", scale, "a number", "__int__")
        if abs(scale * query.size(-1) ** 0.5 - 1) >= 2e-6:
            options["scale"] = scale
    types = {"q_descale_type": q_descale_type, "k_descale_type": k_descale_type, "v_descale_type": v_descale_type}
    options |= {name: value for name, value in types.items() if value}
    if key_lengths is not None and key_lengths.shape != query.shape[:1]:
        raise ValueError(f"key_lengths is {tuple(key_lengths.shape)}, expected ({query.size(0)},): one a sequence")
    for place, name in enumerate(DESCALES):
        more[place] = _of_each_head(name, more[place], key)
    while more and more[-1] is None:
        more.pop()
    return (query, key, value, *more), options, {}


def _require_like(name: str, given: Any, what: str, method: str) -> None:
    """Raises TypeError for what has no such method: text and lists would be true. torch.compile cannot ask for one."""
    if not torch.compiler.is_dynamo_compiling() and (not hasattr(given, method) or getattr(given, "ndim", False)):
        raise TypeError(f"{name} must be {what}, not {type(given).__name__}")


def _of_each_head(name: str, descale: Tensor | None, key: Tensor) -> Tensor | None:
    """Written out, where one number is for several batches or heads. Raises ValueError."""
    sizes = key.shape[:2]
    if descale is None or (descale.shape == sizes and descale.is_contiguous()) or descale.dim() > 2:
        return descale
    if not all(one in (1, size) for one, size in zip(descale.shape[::-1], sizes[::-1], strict=False)):
        raise ValueError(f"{name} is {tuple(descale.shape)}, expected what expands to {tuple(sizes)}")
    return descale.expand(sizes).contiguous()


def called(tensors: Sequence[Tensor | None], options: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of these tensors with these options, as `arguments` takes it."""
    there = {name: each for name, each in zip(MORE, tensors[3:], strict=False) if each is not None}
    return tuple(tensors[:3]), {**there, **options}


def compute(tensors: Sequence[Any], options: Mapping[str, Any], beside: Mapping[str, Any]) -> Tensor:
    """What torch computes for such a call: its own function where FlashAttention 3 is activated for it, else attention
    of what the tensors stand for, in bfloat16."""
    args, kwargs = called(tensors, options)
    return FUNCTION(*args, **kwargs)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    key_lengths: Tensor | None = None,
    corner: str = "top_left",
    **types: Any,
) -> Tensor:
    """As torch's function, with lengths and corners."""
    descales = (q_descale, k_descale, v_descale)
    rows, keys = query.size(-2), key.size(-2)
    bottom = is_causal and corner == "bottom_right" and (rows != keys or key_lengths is not None)
    if key_lengths is None and not bottom and query.is_cuda and query.dtype == key.dtype and (torchs := _torchs()):
        found: Tensor = torchs(query, key, value, is_causal, scale, *descales, **types)
        return found
    if types:
        raise ValueError(f"{next(iter(types))} is not 0: a descale is one for each head")
    mask = None
    if key_lengths is not None or bottom:
        at = torch.arange(keys, device=query.device)
        ends = (at.new_full((1,), keys) if key_lengths is None else key_lengths).view(-1, 1, 1, 1)
        mask = at < ends
        if is_causal:
            place = torch.arange(rows, device=query.device).view(-1, 1)
            mask = mask & (at <= (place + ends - rows if bottom else place))
    dtype, of_o = _of_answer(query), None
    if dtype == torch.bfloat16 and q_descale is not None and k_descale is not None:  # K and V are long
        descales, of_o = (q_descale.float() * k_descale, None, None), v_descale
    q, k, v = (_stands_for(each, descale, dtype) for each, descale in zip((query, key, value), descales, strict=True))
    o = scaled_dot_product_attention(
        q, k, v, mask, is_causal=is_causal and mask is None, scale=scale, enable_gqa=q.size(1) != k.size(1)
    )
    return _stands_for(o, of_o, dtype)


FUNCTION = _attention
WITHIN = getattr(torch.ops.aten._scaled_dot_product_flash_attention, "quantized", None)
"""The op that torch's function calls: of the two this alone is seen by who records."""


def of_within(*tensors: Any, scale: float | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of that op as `arguments` takes it: behind the descales dropout, the mask and what to return."""
    return (*tensors[:3], tensors[7], scale, *tensors[3:6]), {}


def _torchs() -> Any:
    """torch's own function, which is experimental; None where there is none, or FlashAttention 3 is not activated."""
    try:
        from torch.nn.attention import current_flash_attention_impl
        from torch.nn.attention.experimental import _scaled_dot_product_attention_quantized as found
    except ImportError:
        return None
    return found._scaled_dot_product_attention_quantized if current_flash_attention_impl() == "FA3" else None


def _of_answer(query: Tensor) -> torch.dtype:
    return query.dtype if query.dtype in (torch.bfloat16, torch.float16) else torch.bfloat16


def _stands_for(x: Tensor, descale: Tensor | None, dtype: torch.dtype) -> Tensor:
    if descale is None:
        return x.to(dtype)
    of_heads = descale.repeat_interleave(x.size(1) // descale.size(1), 1)[:, :, None, None]
    return (x.float() * of_heads).to(dtype)


def empty(query: Tensor, *_: Any, **__: Any) -> Tensor:
    """An empty O, which lies as Q does."""
    return torch.empty_like(query, dtype=_of_answer(query))
