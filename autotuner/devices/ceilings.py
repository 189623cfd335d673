"""What a device can do at most, measured: matrix products and copies, the same way on every kind of device.

Inputs are random: a product of zeros runs faster than any real one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

LONG_ENOUGH_S = {"cpu": 0.3, "cuda": 0.1}
"""Seconds for which each product and copy is repeated, by the kind of torch device: the best of many short ones finds a
calm moment, which a GPU has always."""


def rate(dtype: torch.dtype, size: int, device: str, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Operations a second of a product of two square matrices."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / least(lambda: seconds(lambda: torch.mm(a, b, out=out)), device)


def bandwidth(count: int, device: str, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Bytes a second, read and written."""
    source = random_bytes(count, device)
    target = torch.empty_like(source)
    return 2 * source.numel() / least(lambda: seconds(lambda: target.copy_(source)), device)


def random_bytes(count: int, device: str) -> torch.Tensor:
    """Nearly so many, drawn eight at a time: one by one takes longer than all that is measured with them."""
    return torch.empty(count // 8, dtype=torch.int64, device=device).random_().view(torch.uint8)


def least(seconds: Callable[[], float], device: str = "cpu") -> float:
    """The fewest seconds that the work took in LONG_ENOUGH_S."""
    until = time.perf_counter() + LONG_ENOUGH_S[device]
    best = seconds()
    while time.perf_counter() < until:
        best = min(best, seconds())
    return best
