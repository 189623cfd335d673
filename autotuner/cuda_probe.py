"""What CUDA devices there are, asked in a process of its own, so that the caller never touches the driver."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

from autotuner.model import Model

MULTIPROCESSORS, L2_BYTES, MAJOR, MINOR = 16, 38, 75, 76
"""Numbers of device attributes: CUdevice_attribute in cuda.h."""

PROBE_S = 60


class CudaFacts(Model):
    """The first device that a process sees."""

    name: str
    sm: int
    multiprocessors: int
    l2_bytes: int
    driver: str
    """The CUDA version that the driver supports."""


def probe() -> CudaFacts | str:
    """The first CUDA device, or in words why there is none."""
    command = [sys.executable, "-c", "from autotuner import cuda_probe; cuda_probe.tell()"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"the CUDA driver does not answer ({error})"
    found = json.loads(done.stdout)
    return str(found["error"]) if "error" in found else CudaFacts.model_validate(found)


def _ask_driver() -> dict[str, object]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"error": "there is no CUDA driver (libcuda.so.1)"}
    status = driver.cuInit(0)
    device = ctypes.c_int()
    status = status or driver.cuDeviceGet(ctypes.byref(device), 0)
    if status:
        return {"error": f"the CUDA driver shows no device (error {status})"}

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
        "sm": 10 * attribute(MAJOR) + attribute(MINOR),
        "multiprocessors": attribute(MULTIPROCESSORS),
        "l2_bytes": attribute(L2_BYTES),
        "driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
    }


def tell() -> None:
    """Prints what the driver says, as one JSON object: the process that `probe` starts."""
    json.dump(_ask_driver(), sys.stdout)
