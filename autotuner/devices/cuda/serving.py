"""A GPU as a user's program sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from autotuner.devices.kind import Serving
from autotuner.values.variant import Value


def _facts(index: int) -> dict[str, Value | bool]:
    properties = torch.cuda.get_device_properties(index)
    return {"SM": 10 * properties.major + properties.minor, "MULTIPROCESSORS": properties.multi_processor_count}


def _on(index: int) -> AbstractContextManager[object] | None:
    """Asking which one is current takes less than making it current again."""
    return None if torch.cuda.current_device() == index else torch.cuda.device(index)


SERVING = Serving(
    facts=_facts,
    # What torch.compile's own code asks: torch.cuda.current_stream makes an object of it first.
    stream=lambda index: int(torch._C._cuda_getCurrentRawStream(index)),
    on=_on,
    waits=False,
)
