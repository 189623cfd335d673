"""What CUDA devices there are, asked in a process of its own, so that the caller never touches the driver."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import uuid
from functools import cache

from pydantic import TypeAdapter

from autotuner.values.model import Model

MULTIPROCESSORS, L2_BYTES, MAJOR, MINOR = 16, 38, 75, 76
"""Numbers of device attributes: CUdevice_attribute in cuda.h."""

PROBE_S = 60


class CudaFacts(Model):
    """One device that a process sees."""

    name: str
    uuid: str
    """As CUDA_VISIBLE_DEVICES takes it."""
    sm: int
    multiprocessors: int
    l2_bytes: int
    driver: str
    """The CUDA version that the driver supports."""


ALL_FACTS = TypeAdapter(tuple[CudaFacts, ...])


def probe() -> CudaFacts | str:
    """The first CUDA device, or in words why there is none."""
    found = probe_all()
    return found if isinstance(found, str) else found[0]


def probe_all() -> tuple[CudaFacts, ...] | str:
    """The CUDA devices, at least one, in the order in which a process sees them; or in words why there is none. What
    there is, is asked once: the driver may take seconds to start."""
    found = _asked()
    if isinstance(found, str):
        _asked.cache_clear()
    return found


@cache
def _asked() -> tuple[CudaFacts, ...] | str:
    command = [sys.executable, "-c", "from autotuner.devices.cuda import probe; probe.tell()"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"the CUDA driver does not answer ({error})"
    found = json.loads(done.stdout)
    return found if isinstance(found, str) else ALL_FACTS.validate_python(found)


def _ask_driver() -> list[dict[str, object]] | str:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no CUDA driver (libcuda.so.1)"
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        return f"the CUDA driver shows no device (error {status})"
    return [_ask_device(driver, number) for number in range(count.value)]


def _ask_device(driver: ctypes.CDLL, number: int) -> dict[str, object]:
    device = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), number)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    name = ctypes.create_string_buffer(128)
    version = ctypes.c_int()
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDriverGetVersion(ctypes.byref(version))
    return {
        "name": name.value.decode(),
        "uuid": _uuid(driver, device),
        "sm": 10 * attribute(MAJOR) + attribute(MINOR),
        "multiprocessors": attribute(MULTIPROCESSORS),
        "l2_bytes": attribute(L2_BYTES),
        "driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
    }


def _uuid(driver: ctypes.CDLL, device: ctypes.c_int) -> str:
    """The device's UUID. Of a part of a GPU (MIG) the second version of the call gives the part's, the first its GPU's;
    by the difference the two are told apart."""
    own, gpu = (ctypes.c_byte * 16)(), (ctypes.c_byte * 16)()
    driver.cuDeviceGetUuid_v2(own, device)
    driver.cuDeviceGetUuid(gpu, device)
    return f"{'GPU' if bytes(own) == bytes(gpu) else 'MIG'}-{uuid.UUID(bytes=bytes(own))}"


def tell() -> None:
    """Prints what the driver says, as JSON: the process that `probe_all` starts."""
    json.dump(_ask_driver(), sys.stdout)
