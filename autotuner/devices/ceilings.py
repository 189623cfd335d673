"""What a device can do at most, measured: the fastest matrix product and the fastest copy.

Inputs are random: a product of zeros runs faster than any real one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from autotuner.devices.cuda.timing import elapsed
from autotuner.devices.instruments import PeakInstrument
from autotuner.ops.sdpa.attention import DTYPES, on_one_thread
from autotuner.values.outcome import Ceilings

LONG_ENOUGH_S = 0.3
"""So long each product and copy is repeated: the best of many short ones finds a moment without disturbance."""

CUDA_SIZES = (4096, 8192)
CUDA_COPY_BYTES = 1 << 30
CPU_SIZE = 512
CPU_COPY_BYTES = 1 << 26


def cuda_ceilings(dtype: str) -> Ceilings:
    """Of the current GPU for products of that dtype; float32 ones on tensor cores (TF32), as variants may use them."""
    allowed, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    try:
        rates = [_rate(DTYPES[dtype], size, "cuda", elapsed) for size in CUDA_SIZES]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    bandwidth = _bandwidth(min(CUDA_COPY_BYTES, torch.cuda.mem_get_info()[0] // 8), "cuda", elapsed)
    torch.cuda.empty_cache()
    return Ceilings(flops=max(rates), bytes=bandwidth)


def cpu_ceilings(dtype: str, peak: PeakInstrument) -> Ceilings:
    """Of as many CPUs as torch has threads: so many times what one of them can do at most. What runs on several threads
    waits for the one that something else disturbs, and would make the ceiling too low.

    The faster of torch's product, which may use units for matrices, and of plain multiply-adds, by which right variants
    can beat it: a library need not use the widest registers. Of a 16-bit type there may be twice as many.
    """
    threads, wide = torch.get_num_threads(), 1 if dtype == "float32" else 2
    with on_one_thread():
        plain = wide * peak.flops / _least(lambda: _cpu_seconds(peak))
        rate = max(plain, _rate(DTYPES[dtype], CPU_SIZE, "cpu", _cpu_seconds))
        bandwidth = _bandwidth(CPU_COPY_BYTES, "cpu", _cpu_seconds)
    return Ceilings(flops=threads * rate, bytes=threads * bandwidth)


def _rate(dtype: torch.dtype, size: int, device: str, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Operations a second of a product of two square matrices."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / _least(lambda: seconds(lambda: torch.mm(a, b, out=out)))


def _bandwidth(count: int, device: str, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Bytes a second, read and written."""
    source = torch.empty(count, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    return 2 * count / _least(lambda: seconds(lambda: target.copy_(source)))


def _least(seconds: Callable[[], float]) -> float:
    until = time.perf_counter() + LONG_ENOUGH_S
    least = seconds()
    while time.perf_counter() < until:
        least = min(least, seconds())
    return least


def _cpu_seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
