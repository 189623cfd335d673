"""What the CPU here can do at most, measured."""

import time

import pytest
import torch

from autotuner.devices.cpu.device import ceilings
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.race.plausible import MARGIN


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.alone
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_product_is_faster_than_the_ceiling(toolchain: CpuToolchain, dtype: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = ceilings(dtype, 1, toolchain)
        assert torch.get_num_threads() == 1
        best = max(product(256), product(384), product(768))
    finally:
        torch.set_num_threads(threads)
    assert best < MARGIN * found.flops
    assert 1e8 < found.bytes < 1e13


def product(size: int) -> float:
    """Operations a second of the best of some products in float32."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = 0.0
    for _ in range(20):
        started = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best
