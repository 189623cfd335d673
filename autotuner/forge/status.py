"""What a variant's status means. Above DEVICE_ERROR it is that and the device's own number, which the device names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from autotuner.values.verdict import SystemFault

OUTSIDE_DOMAIN = 1
"""AT_OUTSIDE_DOMAIN of kernels/abi/variant.h."""

RAISED = 4
"""A function of Python raised, or its answer is none: kernels/abi/python_function.cpp."""
raised: list[str] = []
"""What the last one said that did, in a line."""

STATUS = {
    0: "ok",
    OUTSIDE_DOMAIN: "outside the variant's domain",
    2: "workspace missing or too small",
    3: "no threads",
    RAISED: "the function raised",
}
DEVICE_ERROR = 1000


class LibraryErrors(NamedTuple):
    """Errors of a library that a host side calls: `above` and the library's own number."""

    above: int
    name: str
    where: str
    """Where the numbers are named."""


class DeviceErrors(NamedTuple):
    """The errors of a kind of device."""

    names: Mapping[int, str] = {}
    where: str = ""
    """Where the numbers are named."""
    sticky: frozenset[int] = frozenset()
    """Errors after which the process can do nothing more on the device."""
    library: LibraryErrors | None = None

    def text(self, status: int) -> str:
        """A variant's status in words."""
        if status == RAISED and raised:
            return raised[-1]
        if status < DEVICE_ERROR:
            return STATUS.get(status, f"unknown status {status}")
        number = status - DEVICE_ERROR
        if self.library is not None and number > self.library.above:
            return f"{self.library.name} status {number - self.library.above} (see {self.library.where})"
        return f"device error {number} ({self.names.get(number, f'see {self.where}')})"

    def is_sticky(self, status: int) -> bool:
        """True when the status is a device error that outlives the call."""
        return status - DEVICE_ERROR in self.sticky

    def system_fault(self, status: int) -> SystemFault:
        """A variant's status as the report keeps it: a device error by the device's own number."""
        above = self.library.above if self.library is not None else status
        number = status - DEVICE_ERROR if DEVICE_ERROR <= status <= DEVICE_ERROR + above else status
        return SystemFault(number=number, name=self.text(status), sticky=self.is_sticky(status))
