"""What the CUDA driver says of its devices, as JSON: a program that imports nothing but Python's own, since whoever
tunes waits for it."""

import ctypes
import json
import sys
import uuid

MULTIPROCESSORS, L2_BYTES, MAJOR, MINOR = 16, 38, 75, 76
"""Numbers of device attributes: CUdevice_attribute in cuda.h."""


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


if __name__ == "__main__":
    json.dump(_ask_driver(), sys.stdout)
