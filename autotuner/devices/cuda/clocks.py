"""Whether a GPU holds its clocks down, as NVIDIA's management library (NVML) says."""

from __future__ import annotations

import pynvml

LEAST = 0.75
"""A block under a clock below this share of the default one is void."""

HELD_DOWN = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Reasons after which a block is void: nvmlClocksEventReason... in nvml.h."""


class ClockMonitor:
    """Clocks and throttle reasons of one GPU; says nothing where the driver does not tell."""

    def __init__(self, uuid: str) -> None:
        """`uuid` without its prefix, as torch has it."""
        self._handle = None
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self._default_mhz = _default_mhz(handle)
            self._clocks(handle)
            self._handle = handle
        except pynvml.NVMLError as error:
            self.missing: str | None = f"NVML does not tell: {error}"
        else:
            self.missing = None

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
