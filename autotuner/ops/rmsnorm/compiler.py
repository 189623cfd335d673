"""torch's compiler. Its import takes 7 s on a GPU machine, so processes are forked off one that has it.

A process that has asked CUDA for anything can have no children that use it, and this import asks for the devices: they
are counted by NVML, which leaves CUDA alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

from torch._inductor import config

config.compile_threads = 1  # read when the rest is imported: no processes of its own

import torch._dynamo  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402, F401
