"""From 16 bits to FP8: a factor for each head, by which its largest number becomes the largest that FP8 holds."""

import torch
from torch import Tensor

LARGEST = torch.finfo(torch.float8_e4m3fn).max
SMALLEST_DESCALE = 2.0**-100
"""Of a head that is 0 everywhere."""


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
