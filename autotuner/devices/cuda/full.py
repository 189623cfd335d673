"""A GPU whose memory is full: a launch that fails for want of memory then says nothing about the variant."""

import torch

from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.forge.loaded_variant import DEVICE_ERROR
from autotuner.values.errors import DeviceFullError

OUT_OF_MEMORY = DEVICE_ERROR + 2
"""The status of a variant whose call of the driver found no memory."""

LITTLE = 0.05
"""A device with no more than this share of its memory free is full. A variant that wants what an emptier one does not
have, such as stacks for all of its threads, wants too much."""


def device_bytes(device: torch.device) -> int:
    """All of its memory, whoever has it."""
    return int(torch.cuda.mem_get_info(device)[1])


def unless_full(status: int) -> int:
    """The status of a launch. Raises DeviceFullError where that found no memory and the device is full; what torch
    keeps for later is given back before, so that another try may have it."""
    if status != OUT_OF_MEMORY:
        return status
    free, total = torch.cuda.mem_get_info()
    if free > LITTLE * total:
        return status
    if not torch.cuda.is_current_stream_capturing():
        torch.cuda.empty_cache()
    raise DeviceFullError(f"the memory of the device is full: a launch ended with {CUDA_ERRORS.text(status)}")
