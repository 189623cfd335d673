"""Lines for families made for tests, whatever machine this is."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.family import Family
from autotuner.run.line import LineFactory
from autotuner.run.local import LocalExecutor
from autotuner.values.outcome import Device
from tests.helpers import preload

CACHE_BYTES = 1 << 20
"""A last-level cache so small that few input sets are cold."""


def cpu_line(toolchain: CpuToolchain, family: Family) -> LineFactory:
    """What makes a line on the CPU."""
    facts = {"L2_BYTES": CACHE_BYTES, "L3_BYTES": CACHE_BYTES}
    device = Device(backend="cpu", name="a CPU", facts=facts, environment={})
    return LineFactory(device, toolchain, family)


def cuda_line(toolchain: CudaToolchain, family: Family) -> LineFactory:
    """What makes a line on the GPU that is here."""
    device = Device(backend="cuda", name="a GPU", facts={}, environment={})
    return LineFactory(device, toolchain, family)


@contextmanager
def cpu_judge(toolchain: CpuToolchain, family: Family, **more: Any) -> Iterator[LocalExecutor]:
    """An executor that judges variants of the family on the CPU. `more`: what else an executor takes."""
    with closing(LocalExecutor(cpu_line(toolchain, family), preload.CPU, **more)) as made:
        yield made
