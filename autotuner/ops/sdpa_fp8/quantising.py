"""From 16 bits to FP8: a factor for each head, by which its largest number becomes the largest that FP8 holds."""

import torch
from torch import Tensor

from autotuner.ops.sdpa_fp8.signature import DESCALES

LARGEST = torch.finfo(torch.float8_e4m3fn).max
SMALLEST_DESCALE = 2.0**-100
"""Of a head that is 0 everywhere."""


def quantised_inputs(query: Tensor, key: Tensor, value: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Q, K and V in FP8, and their descales by the names that attention has for them: by torchao's kernels where it is
    installed and takes these, else by `quantised`. Half way between two numbers they may choose different ones."""
    qkv = (query, key, value)
    numbers, descales = _by_torchao(*qkv) or zip(*(quantised(x, key.shape[1]) for x in qkv), strict=True)
    return numbers, dict(zip(DESCALES, descales, strict=True))


def _by_torchao(q: Tensor, k: Tensor, v: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None:
    """Its function is private there. It takes 16 bits on a GPU with FP8, and counts elements in 32 bits."""
    fits = k.shape == v.shape and all(x.is_cuda and x.itemsize == 2 and x.numel() < 2**31 for x in (q, k, v))
    if not fits or torch.cuda.get_device_capability(q.device) < (8, 9):
        return None
    try:
        from torchao.prototype.attention.quantization import _fp8_sdpa_quantize
    except ImportError:
        return None
    with torch.cuda.device_of(q):
        found = _fp8_sdpa_quantize(q, k, v)
    return found[:3], found[3:]


def quantised(x: Tensor, heads_kv: int) -> tuple[Tensor, Tensor]:
    """A tensor (batch, heads, length, head_dim) as float8_e4m3fn, and its descales, float32 (batch, heads_kv): heads
    that share one of K and V have one in common. What it stands for is one times the other."""
    batch, heads = x.shape[:2]
    largest = x.detach().abs().amax((2, 3)).view(batch, heads_kv, heads // heads_kv).amax(2).float()
    descale = (largest / LARGEST).clamp_min(SMALLEST_DESCALE)
    return stored(x / of_heads(descale, heads)), descale


def stored(x: Tensor) -> Tensor:
    """Rounded to float8_e4m3fn. What is larger than its numbers becomes the largest of them."""
    return x.float().clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def of_heads(descale: Tensor, heads: int) -> Tensor:
    """Descales for so many heads, (batch, heads, 1, 1)."""
    return descale.repeat_interleave(heads // descale.shape[1], 1)[:, :, None, None]
