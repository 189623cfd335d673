"""Guarded memory on CUDA: a tensor has memory of its own, beyond which lies nothing (reserved_memory.py). What is left
beside it is band, a NaN: a read of it shows in the output, a write is found there."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from autotuner.devices.cuda.reserved_memory import PIECE, between_nothing

PATTERN = 0x7FA5
"""A NaN with a payload, in float16 and in bfloat16; twice over, also in float32."""

KEPT = 1 << 30
"""Bytes of memory that are kept from launch to launch, at most."""

SAME = 3
"""Not 2: pairs of launches with different inputs, one pair a check, might fall between two rows time after time."""


class Band(NamedTuple):
    """Words that nobody may write."""

    words: Tensor
    after: bool = False
    """A tensor ends where they begin."""
    before: bool = False
    """A tensor begins where they end."""


class Slot:
    """Memory for one tensor, in multiples of PIECE, between addresses at which nothing is. What is left beside the
    tensor is band."""

    def __init__(self, size: int) -> None:
        self.words = between_nothing(-(-size // PIECE) * PIECE).view(torch.int16).fill_(PATTERN)
        self._taken = (0, 0)

    def take(self, size: int, shift: int = 0, alignment: int = 16, at_end: bool = False) -> Tensor:
        """`size` bytes as words, at the beginning of the memory or as near to its end as the alignment allows, `shift`
        bytes past that."""
        room = 2 * self.words.numel() - size - shift
        start = room // alignment * alignment * at_end + shift
        self._taken = start // 2, (start + size + 1) // 2
        return self.words[slice(*self._taken)]

    def bands(self) -> list[Band]:
        """What lies before the tensor, and past its end."""
        start, stop = self._taken
        return [Band(self.words[:start], before=True), Band(self.words[stop:], after=True)]


class Arena:
    """Guarded memory for the tensors of a launch: each lies between addresses at which nothing is, so that a write far
    past one is an error of the device. In a row of SAME launches they begin there, in the next row they end there; in a
    row tensors of the same sizes lie where they lay before, so that an answer kept by address is found."""

    def __init__(self) -> None:
        self._free: list[Slot] = []
        self._used: list[Slot] = []
        self._gaps: list[tuple[Tensor, Tensor]] = []
        self._launches = 0

    def begin(self) -> None:
        """Another variant's launches follow: in the first one the tensors begin at the guards, in the second they end
        there."""
        self.restore()
        self._launches = SAME - 1

    def take(self, size: int, shift: int = 0, alignment: int = 16) -> Tensor:
        """`size` bytes, `shift` bytes past a multiple of the alignment or, where they are shifted, of 64, as int16
        words (size rounded up). Raises DeviceFullError."""
        alignment = 64 if shift else alignment
        wanted = max(PIECE, 1 << (size + shift + alignment - 1).bit_length())
        place = next((place for place, each in enumerate(self._free) if 2 * each.words.numel() == wanted), None)
        found = Slot(wanted) if place is None else self._free.pop(place)
        self._used.append(found)
        return found.take(size, shift, alignment, self._launches // SAME % 2 == 1)

    def bands(self) -> list[Band]:
        """The bands around all that was handed out."""
        gathered = (Band(words[gaps], after=True) for words, gaps in self._gaps)
        return [*(band for slot in self._used for band in slot.bands()), *gathered]

    def watch(self, words: Tensor, gaps: Tensor) -> None:
        """These of the words lie in the gaps between a tensor's rows: they are band too."""
        self._gaps.append((words, gaps))

    def restore(self) -> None:
        """Takes all tensors back and makes all memory band again."""
        self._gaps.clear()
        for slot in self._used:
            slot.words.fill_(PATTERN)
        self._free = self._used + self._free
        self._used = []
        self._launches += 1
        if sum(2 * slot.words.numel() for slot in self._free) > KEPT:
            torch.cuda.synchronize()  # nothing is at work on what is given back
            self._free.clear()


def written(band: Band) -> Tensor:
    """Whether a band is no longer what it was, as a tensor: many are looked at in one transfer."""
    return (band.words != PATTERN).any()


def damage(bands: Sequence[Band], flags: Sequence[bool] | None = None) -> str | None:
    """The first band that was written, in words; `flags` says which are, where that is known already."""
    if flags is None:
        flags = torch.stack([written(band) for band in bands]).tolist() if bands else []
    return next((_describe(band) for band, flag in zip(bands, flags, strict=True) if flag), None)


def _describe(band: Band) -> str:
    where = (band.words != PATTERN).nonzero().flatten()
    first, last = 2 * int(where[0]), 2 * int(where[-1])
    if band.after and (first < band.words.numel() or not band.before):
        return f"{2 * len(where)} bytes past a tensor's end were written, nearest at +{first}"
    return f"{2 * len(where)} bytes before a tensor were written, nearest {2 * band.words.numel() - last} before it"
