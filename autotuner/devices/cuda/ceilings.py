"""What the current GPU can do at most."""

from __future__ import annotations

import torch

from autotuner.devices.ceilings import bandwidth, rate
from autotuner.devices.cuda.timing import elapsed
from autotuner.ops.tensors import DTYPES
from autotuner.values.outcome import Ceilings

SIZES = (4096, 8192)
COPY_BYTES = 1 << 30


def ceilings(dtype: str) -> Ceilings:
    """For products of that dtype; float32 ones on tensor cores (TF32), as variants may use them."""
    allowed, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    try:
        rates = [rate(DTYPES[dtype], size, "cuda", elapsed) for size in SIZES]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    copied = bandwidth(min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 8), "cuda", elapsed)
    torch.cuda.empty_cache()
    return Ceilings(flops=max(rates), bytes=copied)
