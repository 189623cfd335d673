"""torch's compiler. Its import takes 7 s on a GPU machine, so processes are forked off one that has it."""

from __future__ import annotations

from torch._inductor import config

config.compile_threads = 1  # read when the rest is imported: no processes of its own

import torch._dynamo  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402, F401
