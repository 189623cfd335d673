"""What a kind of device says of itself: a record of small parts. Only what `module` names imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from autotuner.build.toolchain import Toolchain
from autotuner.values.outcome import Device

if TYPE_CHECKING:
    from autotuner.devices.process import DeviceProcess


class Wishes(NamedTuple):
    """What a user may ask of a device; None: nothing was said."""

    threads: int | None = None
    """Threads that the variants and the baseline may use; None: all."""
    arch: str | None = None
    """An architecture to compile for, whatever device is here."""
    devices: str | None = None
    """Which of several devices."""


class Chosen(NamedTuple):
    """The devices that a sweep runs on; they are of one model."""

    device: Device
    lanes: tuple[str | None, ...] = (None,)
    """For each device what tells its process which it is (CUDA_VISIBLE_DEVICES); None: what the driver sees."""

    @property
    def environments(self) -> list[dict[str, str]]:
        """What the numbers of each chosen device depend on."""
        return [{**self.device.environment, "device": lane} for lane in self.lanes if lane is not None]


class DeviceKind(NamedTuple):
    """All that the other rooms ask of a kind of device."""

    name: str
    preference: int
    """Of the kinds that can be used here the one with the largest is tuned for when none is named."""
    choices: frozenset[str]
    """Which wishes have a meaning: names of the fields of `Wishes`."""
    missing: Callable[[], str | None]
    """Why nothing can be tuned for such a device here, in words; None when it can."""
    choose: Callable[[Wishes], Chosen]
    """Raises InputError with the remedy when there is no such device."""
    toolchain: Callable[[Device], Toolchain]
    """Raises ToolchainError with the remedy."""
    module: str
    """What a process that uses the device imports."""
    open: Callable[[Toolchain, Device], DeviceProcess]
    """Opens the device in the process that calls it. Raises InfrastructureError when the device does not work."""
    builders: Callable[[int], int]
    """How many variants are built at a time beside that many devices."""
    overlap: bool = False
    """Builds run beside what is judged. Else, as where they share CPUs, building and judging take turns."""
    jobs_per_process: int = 1
    """Variants that one process judges, which keeps references and baselines, before a fresh one."""
