"""The CPU as a user's program sees it."""

from __future__ import annotations

import torch

from autotuner.devices.cpu.machine import cpu_facts
from autotuner.devices.kind import Serving

SERVING = Serving(
    facts=lambda index: cpu_facts(torch.get_num_threads()),
    stream=lambda index: 0,
    on=lambda index: None,
    waits=True,
)
