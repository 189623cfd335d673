"""Devices: where variants are built for, judged and timed. DEVICES[name] is all that the other rooms know of a kind.

A kind of device is a folder with a record DEVICE (kind.py says what is in it), or another package's entry point of the
group `autotuner.devices`. It offers a bench, tracks, truths and ceilings (process.py), its facts and its toolchain; it
contains nothing of the gate and of the races. No other room names a device.
"""

import sys

from autotuner.devices.kind import Chosen, DeviceKind, Wishes, device_names
from autotuner.values.plugs import Plugs

__all__ = ["DEVICES", "Chosen", "DeviceKind", "Wishes", "device_names", "shown_by", "versions"]

DEVICES: Plugs[DeviceKind] = Plugs(__name__, "device", folders=sys.modules[__name__])


def shown_by() -> tuple[str, ...]:
    """The variables of the environment that say which devices a process sees, of all kinds."""
    return tuple(sorted({kind.shown_by for kind in DEVICES.values() if kind.shown_by}))


def versions() -> dict[str, str]:
    """The versions that the answers of torch's kernels depend on: torch's, and what each kind of device adds where
    there is one here. Imports torch."""
    import torch

    found = {"torch": str(torch.__version__)}
    for kind in DEVICES.values():
        found |= kind.versions()
    return found
