"""A third kind of device, of another package: this machine's CPU again, under another name and facts of its own."""

import math
import os

from autotuner.devices import Chosen, DeviceKind, Wishes, cpu
from autotuner.devices.cpu.machine import cpu_facts
from autotuner.devices.environment import environment
from autotuner.devices.process import DeviceProcess
from autotuner.forge.toolchain import Toolchain
from autotuner.ops import ahead
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Device

SICK = "OTHER_CPU_IS_SICK"
"""The variable that names a file: as long as that is there the device does not work."""


def _choose(wishes: Wishes) -> Chosen:
    facts = {"THREADS_ALLOWED": 1, "LANES_OF_MINE": 8}
    return Chosen(Device(backend="other_cpu", name="another CPU", facts=facts, environment=environment()))


def _open(toolchain: Toolchain, device: Device) -> DeviceProcess:
    from autotuner.devices.cpu.device import CpuProcess
    from autotuner.devices.cpu.toolchain import CpuToolchain

    assert isinstance(toolchain, CpuToolchain)
    if os.path.exists(os.environ.get(SICK, "")):  # noqa: PTH110
        raise InfrastructureError("the device is gone")
    ahead.MAKING_S["cpu"] = math.inf  # torch's compiler takes longer than all else that tests do on this device
    return CpuProcess(toolchain, int(cpu_facts(1)["L3_BYTES"]))


DEVICE = DeviceKind(
    name="other_cpu",
    preference=-1,
    choices=frozenset({"threads"}),
    missing=lambda: None,
    choose=_choose,
    toolchain=cpu.DEVICE.toolchain,
    module=__name__,
    open=_open,
    builders=lambda lanes: 2,
)
