"""What NVIDIA's management library (NVML) says of a GPU: whether it holds its clocks down, and who uses it now besides
ourselves. The second is asked in a process of its own, so that a driver that hangs does not hang the caller."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import psutil
import pynvml

from autotuner.devices.environment import own_processes

LEAST = 0.75
"""A block under a clock below this share of the default one is void."""

HELD_DOWN = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Reasons after which a block is void: nvmlClocksEventReason... in nvml.h."""

ASKED_S = 20
"""Seconds that the driver has for its answer."""
HOT_C = 80
"""Degrees Celsius from which on the temperature is mentioned."""


class ClockMonitor:
    """Clocks and throttle reasons of one GPU; says nothing where the driver does not tell."""

    def __init__(self, uuid: str) -> None:
        """`uuid` without its prefix, as torch has it."""
        self._handle = None
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self._default_mhz = _default_mhz(handle)
            self._clocks(handle)
            self._handle = handle

    def _clocks(self, handle: object) -> tuple[int, int]:
        """The clock of the multiprocessors in MHz, and the bits of the reasons why it is no higher."""
        mhz = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        return mhz, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)

    def throttled(self) -> str | None:
        """Why what ran just now does not count; None when it does, or nobody knows."""
        if self._handle is None:
            return None
        try:
            mhz, reasons = self._clocks(self._handle)
        except pynvml.NVMLError:
            return None
        return held_down(mhz, reasons, self._default_mhz)


def held_down(mhz: int, reasons: int, default_mhz: int) -> str | None:
    """Why a device with that clock and those throttle reasons does not count; None when it does."""
    named = [name for bit, name in HELD_DOWN.items() if reasons & bit]
    if named:
        return f"the device throttles: {', '.join(named)}"
    if mhz < LEAST * default_mhz:
        return f"the device's clock is at {mhz} MHz, its default is {default_mhz} MHz"
    return None


def _default_mhz(handle: object) -> int:
    """The default clock of the multiprocessors; the highest one where the driver names no default."""
    try:
        return int(pynvml.nvmlDeviceGetDefaultApplicationsClock(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))


def who_disturbs(uuids: Sequence[str]) -> str:
    """Foreign processes on these GPUs, clocks that are held down and heat, in a line; "" when there is nothing."""
    command = [sys.executable, "-c", f"from {__name__} import tell; tell()", *uuids]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASKED_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return "the GPU's driver does not say who uses it"
    mine = own_processes()
    return "; ".join(line for each in json.loads(done.stdout) if (line := _line(each, mine)))


def _line(found: dict[str, object], mine: set[int]) -> str:
    """What is said of one GPU."""
    pids = found["pids"]
    assert isinstance(pids, dict)
    foreign = [_named(int(pid), int(used)) for pid, used in pids.items() if int(pid) not in mine]
    said = [f"on the GPU: {', '.join(foreign)}"] if foreign else []
    return "; ".join([*said, *(str(each) for each in (found["busy"], found["clocks"], found["heat"]) if each)])


def _named(pid: int, mebibytes: int) -> str:
    """A process that may be another container's, and has no name here then."""
    try:
        named = f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        named = f"pid {pid}, which cannot be seen from here"
    return f"{named}, {mebibytes} MiB"


def tell() -> None:
    """Prints what NVML says of the GPUs whose UUIDs are the arguments, as JSON: the process of `who_disturbs`."""
    json.dump([_asked(uuid) for uuid in sys.argv[1:]], sys.stdout)


def _asked(uuid: str) -> dict[str, object]:
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
        heat = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    except pynvml.NVMLError as error:
        return {"pids": {}, "busy": f"NVML does not tell who uses it: {error}", "clocks": "", "heat": ""}
    return {
        "pids": {each.pid: (each.usedGpuMemory or 0) >> 20 for each in running},
        "busy": f"it is busy {busy} % of the time" if busy else "",
        "clocks": (busy and ClockMonitor(uuid.removeprefix("GPU-")).throttled()) or "",  # an idle one is slow
        "heat": f"its temperature is {heat} C" if heat >= HOT_C else "",
    }
