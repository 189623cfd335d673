"""Libraries of attention as baselines, each called as its documentation does, where it is installed."""

from importlib import import_module
from typing import Any

from torch import Tensor


def flash_attn(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False, softcap: float = 0.0) -> Tensor:
    """FlashAttention 2. Raises RuntimeError for a mask at the other corner."""
    library: Any = import_module("flash_attn")
    _require_one_corner(query, key, is_causal)
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    found: Tensor = library.flash_attn_func(q, k, v, causal=is_causal, softcap=softcap)
    return found.transpose(1, 2)


def flashinfer(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    """FlashInfer, for a single sequence. Raises RuntimeError for several, and a mask at the other corner."""
    library: Any = import_module("flashinfer")
    _require_one_corner(query, key, is_causal)
    if query.shape[0] != 1:
        raise RuntimeError("it is called for one sequence: batch is 1")
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    found: Tensor = library.single_prefill_with_kv_cache(q, k, v, causal=is_causal)
    return found.transpose(0, 1)[None]


def _require_one_corner(query: Tensor, key: Tensor, is_causal: bool) -> None:
    if is_causal and query.shape[2] != key.shape[2]:
        raise RuntimeError("its causal mask begins at the bottom right")
