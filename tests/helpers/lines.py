"""Lines for families made for tests, whatever machine this is."""

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.family import Family
from autotuner.run.line import LineFactory
from autotuner.values.outcome import Device

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
