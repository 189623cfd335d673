"""Memory on CUDA between addresses at which nothing is: they are reserved with the driver and cost nothing, and a
launch that reads or writes there ends with an error of the device.

    | WIDE bytes of nothing | memory, or several pieces of it with nothing between them | WIDE bytes of nothing |
"""

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import byref, c_uint64
from typing import Any

import torch
from torch import Tensor

from autotuner.values.errors import DeviceFullError, InfrastructureError

WIDE = 16 << 30
"""Bytes of addresses on each side."""
PIECE = 2 << 20
"""The driver maps memory in multiples of so many bytes."""
ON_DEVICE, PINNED, READ_AND_WRITE, FULL = 1, 1, 3, 2
"""Of cuda.h: a location, a kind of memory, the access to it, and the error where there is no memory left."""
INTS, NOTHING = ctypes.c_int * 8, c_uint64(0)


class _Addresses:
    """Reserved addresses around `size` bytes, of which torch makes a tensor; given back with the last one of it."""

    def __init__(self, size: int, device: int) -> None:
        self._driver, self._device = ctypes.CDLL("libcuda.so.1"), device
        self._mapped: list[tuple[c_uint64, c_uint64]] = []
        whole, found = c_uint64(-(-size // PIECE) * PIECE + 2 * WIDE), c_uint64()
        self._call("cuMemAddressReserve", byref(found), whole, c_uint64(PIECE), NOTHING, NOTHING)
        self._begin = found.value + WIDE
        place = {"data": (self._begin, False), "shape": (size,), "typestr": "|u1", "strides": None}
        self.__cuda_array_interface__ = {**place, "version": 3}
        weakref.finalize(self, _give_back, self._driver, found, whole, self._mapped).atexit = False

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status == FULL:
            raise DeviceFullError(f"the memory of the device is full: {name} found none")
        if status:
            raise InfrastructureError(f"the driver cannot map memory between guards: {name} gave {status}")

    def hold(self, start: int, stop: int) -> None:
        """From now on there is memory for these bytes. Raises DeviceFullError."""
        at, size, handle = c_uint64(self._begin + start), c_uint64(stop - start), c_uint64()
        wanted = INTS(PINNED, 0, ON_DEVICE, self._device)  # CUmemAllocationProp
        access = INTS(ON_DEVICE, self._device, READ_AND_WRITE)  # CUmemAccessDesc
        self._call("cuMemCreate", byref(handle), size, byref(wanted), NOTHING)
        self._call("cuMemMap", at, size, NOTHING, handle, NOTHING)
        self._call("cuMemRelease", handle)  # it stays as long as it is mapped
        self._mapped.append((at, size))
        self._call("cuMemSetAccess", at, size, byref(access), c_uint64(1))


def _give_back(
    driver: ctypes.CDLL, base: c_uint64, whole: c_uint64, mapped: Sequence[tuple[c_uint64, c_uint64]]
) -> None:
    for at, size in mapped:
        driver.cuMemUnmap(at, size)
    driver.cuMemAddressFree(base, whole)


def between_nothing(size: int, parts: Sequence[tuple[int, int]] = ()) -> Tensor:
    """`size` bytes on the current device. `parts`: the first byte, and the one behind the last, of what there has to be
    memory for, in order; else for all of it.

    Raises DeviceFullError, and InfrastructureError where the driver has no such memory.
    """
    device = torch.cuda.current_device()
    addresses, held = _Addresses(size, device), 0
    for first, last in parts or [(0, size)]:
        start, stop = max(held, first // PIECE * PIECE), -(-last // PIECE) * PIECE
        if start < stop:
            addresses.hold(start, stop)
            held = stop
    return torch.as_tensor(addresses, device=f"cuda:{device}")
