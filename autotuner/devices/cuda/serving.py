"""A GPU as a user's program sees it."""

from __future__ import annotations

import torch

from autotuner.devices.kind import Serving
from autotuner.values.variant import Value


def _facts(index: int) -> dict[str, Value | bool]:
    properties = torch.cuda.get_device_properties(index)
    return {"SM": 10 * properties.major + properties.minor, "MULTIPROCESSORS": properties.multi_processor_count}


SERVING = Serving(
    facts=_facts,
    stream=lambda index: torch.cuda.current_stream(index).cuda_stream,
    on=torch.cuda.device,
)
