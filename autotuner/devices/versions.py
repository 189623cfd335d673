"""The versions that the answers of torch's kernels depend on."""

from __future__ import annotations

import torch

from autotuner.devices import DEVICES


def versions() -> dict[str, str]:
    """torch's, and what each kind of device adds where there is one here."""
    found = {"torch": str(torch.__version__)}
    for kind in DEVICES.values():
        found |= kind.versions()
    return found
