"""Guarded memory on CUDA: tensors between bands of NaN.

    | band | tensor | band | tensor | ... | band |

A read past a tensor's end brings a NaN into the output, a write is found in the band. Where the gate launches each
tensor has memory of its own, and beyond it lies nothing (reserved_memory.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from autotuner.devices.cuda.reserved_memory import PIECE, between_nothing

PATTERN = 0x7FA5
"""A NaN with a payload, in float16 and in bfloat16; twice over, also in float32."""

BAND = 32 << 10
"""Bytes of a band: more than a tile's rows, since what is just past the end is what a wrong tail touches."""

ALIGNMENT = 1024
KEPT = 1 << 30
"""Bytes of memory that are kept from launch to launch, at most."""


class Band(NamedTuple):
    """Words that nobody may write."""

    words: Tensor
    after: bool = False
    """A tensor ends where they begin."""
    before: bool = False
    """A tensor begins where they end."""


class Segment:
    """One allocation, handed out in order."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.words = torch.full((-(-size // 2),), PATTERN, dtype=torch.int16, device=device)
        self._taken: list[tuple[int, int]] = []

    @classmethod
    def around(cls, size: int, device: torch.device) -> Segment:
        """One that has room for `size` bytes."""
        return cls(size + 2 * (BAND + ALIGNMENT), device)

    def take(self, size: int, shift: int = 0) -> Tensor | None:
        """The next `size` bytes as words, `shift` past a multiple of ALIGNMENT; None when they do not fit."""
        end = self._taken[-1][1] if self._taken else 0
        start = -(-(end + BAND) // ALIGNMENT) * ALIGNMENT + shift
        stop = start + -(-size // 2) * 2
        if 2 * self.words.numel() < stop + BAND:
            return None
        self._taken.append((start, stop))
        return self.words[start // 2 : stop // 2]

    def bands(self) -> list[Band]:
        """Each stretch beside and between what was handed out."""
        if not self._taken:
            return []
        stops = [0, *(stop for _, stop in self._taken)]
        starts = [*(start for start, _ in self._taken), self._taken[-1][1] + BAND]
        pairs = zip(stops, starts, strict=True)
        return [Band(self.words[stop // 2 : start // 2], stop > 0, before=True) for stop, start in pairs]


class Slot:
    """Memory for one tensor, in multiples of PIECE, between addresses at which nothing is. What is left beside the
    tensor is band."""

    def __init__(self, size: int) -> None:
        self.words = between_nothing(size).view(torch.int16).fill_(PATTERN)
        self._taken = (0, 0)

    def take(self, size: int, shift: int, alignment: int, at_end: bool) -> Tensor:
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
    past one is an error of the device. In every second launch they end there, in the others they begin there."""

    def __init__(self) -> None:
        self._free: list[Slot] = []
        self._used: list[Slot] = []
        self._gaps: list[tuple[Tensor, Tensor]] = []
        self._at_end = False

    def begin(self) -> None:
        """Another variant's launches follow: in the first one the tensors begin at the guards."""
        self.restore()
        self._at_end = False

    def take(self, size: int, shift: int = 0, alignment: int = 16) -> Tensor:
        """`size` bytes, `shift` bytes past a multiple of the alignment or, where they are shifted, of 64, as int16
        words (size rounded up). Raises DeviceFullError."""
        alignment = 64 if shift else alignment
        wanted = max(PIECE, 1 << (size + shift + alignment - 1).bit_length())
        found = next((slot for slot in self._free if 2 * slot.words.numel() == wanted), None)
        if found is None:
            found = Slot(wanted)
        else:
            self._free.remove(found)
        self._used.append(found)
        return found.take(size, shift, alignment, self._at_end)

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
        self._free += self._used
        self._used = []
        self._at_end = not self._at_end
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
    if band.after and (first < BAND // 2 or not band.before):
        return f"{2 * len(where)} bytes past a tensor's end were written, nearest at +{first}"
    return f"{2 * len(where)} bytes before a tensor were written, nearest {2 * band.words.numel() - last} before it"
