"""A GPU as a user's program sees it."""

from __future__ import annotations

import ctypes
import threading
from contextlib import AbstractContextManager

import torch

from autotuner.devices.kind import Serving
from autotuner.values.variant import Value


def _facts(index: int) -> dict[str, Value | bool]:
    properties = torch.cuda.get_device_properties(index)
    return {"SM": 10 * properties.major + properties.minor, "MULTIPROCESSORS": properties.multi_processor_count}


class _Thread(threading.local):
    """What is known of a thread."""

    has_context = False


_HERE = _Thread()


def has_context() -> bool:
    """Whether a context is current in this thread, as calls of the driver ask."""
    context = ctypes.c_void_p()
    return _driver().cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value is not None


def _enter(index: int) -> None:
    """Makes the device's primary context, the one of CUDA's runtime, current in a thread that has none yet. Variants
    are launched by the driver, which makes none; of torch's calls those do that reach the runtime, and what comes from
    torch's cache of memory does not. The context is kept: torch uses it as long as the process lives."""
    if not has_context():
        driver, device, context = _driver(), ctypes.c_int(), ctypes.c_void_p()
        found = driver.cuDeviceGet(ctypes.byref(device), index) == 0
        if found and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0:
            driver.cuCtxSetCurrent(context)
    _HERE.has_context = True


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _on(index: int) -> AbstractContextManager[object] | None:
    """Asking which one is current takes less than making it current again."""
    current = torch._C._cuda_getDevice()  # torch.cuda.current_device asks first whether CUDA is there
    if not _HERE.has_context:
        _enter(current)
    return None if current == index else torch.cuda.device(index)


SERVING = Serving(
    facts=_facts,
    # What torch.compile's own code asks: torch.cuda.current_stream makes an object of it first.
    stream=lambda index: int(torch._C._cuda_getCurrentRawStream(index)),
    on=_on,
    waits=False,
)
