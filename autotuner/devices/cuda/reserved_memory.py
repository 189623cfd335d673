"""Memory on CUDA between addresses at which nothing is: they are reserved with the driver and cost nothing, and a
launch that reads or writes there ends with an error of the device.

    | WIDE bytes of nothing | memory, or several pieces of it with nothing between them | WIDE bytes of nothing |
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
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


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Memory(ctypes.Structure):
    _fields_ = (
        *(("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", _Location)),
        *(("metadata", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class _Addresses:
    """Reserved addresses around `size` bytes, given back with the last tensor that lies in them."""

    def __init__(self, size: int, device: int) -> None:
        self._driver, self._device = ctypes.CDLL("libcuda.so.1"), device
        self._mapped: list[tuple[int, int]] = []
        whole, found = size + 2 * WIDE, ctypes.c_uint64()
        self._call("cuMemAddressReserve", ctypes.byref(found), *map(ctypes.c_uint64, (whole, PIECE, 0, 0)))
        self.begin = found.value + WIDE
        weakref.finalize(self, _give_back, self._driver, found.value, whole, self._mapped).atexit = False

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status == FULL:
            raise DeviceFullError(f"the memory of the device is full: {name} found none")
        if status:
            raise InfrastructureError(f"the driver cannot map memory between guards: {name} gave {status}")

    def hold(self, start: int, stop: int) -> None:
        """From now on there is memory for these bytes. Raises DeviceFullError."""
        at, size, handle = self.begin + start, ctypes.c_uint64(stop - start), ctypes.c_uint64()
        here = _Location(ON_DEVICE, self._device)
        wanted, access = _Memory(type=PINNED, location=here), _Access(here, READ_AND_WRITE)
        self._call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(wanted), ctypes.c_uint64(0))
        try:
            self._call("cuMemMap", ctypes.c_uint64(at), size, ctypes.c_uint64(0), handle, ctypes.c_uint64(0))
        finally:
            self._call("cuMemRelease", handle)  # it stays as long as it is mapped
        self._mapped.append((at, stop - start))
        self._call("cuMemSetAccess", ctypes.c_uint64(at), size, ctypes.byref(access), ctypes.c_size_t(1))


def _give_back(driver: ctypes.CDLL, base: int, whole: int, mapped: list[tuple[int, int]]) -> None:
    for at, size in mapped:
        driver.cuMemUnmap(ctypes.c_uint64(at), ctypes.c_uint64(size))
    driver.cuMemAddressFree(ctypes.c_uint64(base), ctypes.c_uint64(whole))


class _Array:
    """What torch makes a tensor of."""

    def __init__(self, addresses: _Addresses, size: int) -> None:
        self.addresses = addresses
        place = {"data": (addresses.begin, False), "shape": (size,), "typestr": "|u1", "strides": None}
        self.__cuda_array_interface__ = {**place, "version": 3}


def between_nothing(size: int, parts: Sequence[tuple[int, int]] = ()) -> Tensor:
    """`size` bytes on the current device. `parts`: the first byte, and the one behind the last, of what there has to be
    memory for, in order; else for all of it.

    Raises DeviceFullError, and InfrastructureError where the driver has no such memory.
    """
    device = torch.cuda.current_device()
    addresses, held = _Addresses(-(-size // PIECE) * PIECE, device), 0
    for first, last in parts or [(0, size)]:
        start, stop = max(held, first // PIECE * PIECE), -(-last // PIECE) * PIECE
        if start < stop:
            addresses.hold(start, stop)
            held = stop
    return torch.as_tensor(_Array(addresses, size), device=f"cuda:{device}")
