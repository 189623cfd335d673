"""This machine's CPU with times that are drawn: what else the machine does changes nothing that a sweep finds."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

from autotuner.devices import Chosen, DeviceKind, Wishes, cpu
from autotuner.forge.toolchain import Toolchain
from autotuner.ops import ahead
from autotuner.values.outcome import Device
from autotuner.values.variant import Variant

if TYPE_CHECKING:
    from autotuner.devices.process import DeviceProcess

BASELINE_US = 100_000.0
"""So long that no variant is faster than a busy machine says it can be."""
ROUGH = 0.02
"""How much of a latency, relative, is not smooth."""
CACHE_BYTES = 1 << 20
"""Of the last level. Nobody times what it holds."""


def microseconds(variant: Variant) -> float:
    """What is true of a variant of the family `drawn`."""
    point = variant.point
    cost = 0.0 if point["IMPL"] == "simd" else 0.9
    for name, best, weight in (("UNROLL", 4, 0.1), ("VEC_WIDTH", 8, 0.2), ("BLOCK", 2, 0.08)):
        cost += weight * abs(math.log2(int(point.get(name, 1)) / best))
    cost += 0.002 * abs(int(point.get("PREFETCH", 0)) - 24) + 0.05 * int(point.get("STREAM", 0))
    rough = zlib.crc32(variant.digest.encode()) / 2**32
    return 0.5 * BASELINE_US * math.exp(cost + ROUGH * rough)


def _choose(wishes: Wishes) -> Chosen:
    device = cpu.choose(wishes._replace(devices=None)).device
    device = device.model_copy(update={"backend": "drawn_cpu", "name": "a CPU whose times are drawn"})
    named = tuple((wishes.devices or "").split(","))
    return Chosen(device, named, named, named) if wishes.devices else Chosen(device)


def _open(toolchain: Toolchain, device: Device) -> DeviceProcess:
    from autotuner.devices.cpu.toolchain import CpuToolchain
    from drawn_cpu.device import DrawnProcess

    assert isinstance(toolchain, CpuToolchain)
    ahead.MAKING_S["cpu"] = math.inf  # whatever torch's compiler makes, its times would be drawn
    return DrawnProcess(toolchain, CACHE_BYTES)


DEVICE = DeviceKind(
    name="drawn_cpu",
    preference=-2,
    choices=frozenset({"threads", "devices"}),
    missing=lambda: None,
    choose=_choose,
    toolchain=cpu.DEVICE.toolchain,
    module="drawn_cpu.device",
    open=_open,
    builders=lambda lanes: 2,
)
