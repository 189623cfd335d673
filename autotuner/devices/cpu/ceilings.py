"""What the CPUs can do at most."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from autotuner.devices.bench import instrument
from autotuner.devices.ceilings import bandwidth, least, rate
from autotuner.forge.toolchain import Toolchain
from autotuner.ops.tensors import DTYPES, on_one_thread
from autotuner.values.outcome import Ceilings

SIZE = 512
COPY_BYTES = 1 << 26
PEAK_CHAINS, PEAK_STEPS = 12, 1 << 20
"""Independent sums (kernels/instruments/peak.cpp), and multiply-adds of each in a call: a millisecond or a few."""
PEAK_FLOPS = 2 * PEAK_CHAINS * PEAK_STEPS
"""Operations of such a call."""


def copy_past_the_caches(toolchain: Toolchain) -> Callable[[Tensor, Tensor], None]:
    """A copy of bytes on one CPU. Raises ToolchainError when it cannot be built."""
    stream = instrument("cpu", "stream", {}, toolchain)

    def copy(source: Tensor, target: Tensor) -> None:
        stream.command((source.data_ptr(), target.data_ptr(), source.numel()), 0)

    return copy


def ceilings(dtype: str, toolchain: Toolchain) -> Ceilings:
    """As many CPUs as torch has threads: their number times what one of them can do at most. What runs on several
    threads waits for the one that something else disturbs, and would make the ceiling too low.

    The faster of torch's product, which may use units for matrices, and of plain multiply-adds, by which right variants
    can beat it: a library need not use the widest registers. Of a 16-bit type there may be twice as many. And the
    faster of torch's copy and of one past the caches: torch's may read each line before it overwrites it.
    """
    peak, copy = instrument("cpu", "peak", {}, toolchain), copy_past_the_caches(toolchain)
    source, target = (torch.empty(COPY_BYTES, dtype=torch.uint8).random_() for _ in range(2))
    threads, wide = torch.get_num_threads(), 1 if dtype == "float32" else 2
    with on_one_thread():
        plain = wide * PEAK_FLOPS / least(lambda: _seconds(lambda: peak.command((PEAK_STEPS,), 0)))
        flops = max(plain, rate(DTYPES[dtype], SIZE, "cpu", _seconds))
        streamed = 2 * COPY_BYTES / least(lambda: _seconds(lambda: copy(source, target)))
        copied = max(streamed, bandwidth(COPY_BYTES, "cpu", _seconds))
    return Ceilings(flops=threads * flops, bytes=threads * copied)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
