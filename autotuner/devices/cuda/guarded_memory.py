"""Guarded memory on CUDA: tensors in one allocation, between bands of NaN.

    | band | tensor | band | tensor | ... | band |

A read past a tensor's end brings a NaN into the output, a write is found in the band.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PATTERN = 0x7FA5
"""A NaN with a payload, in float16 and in bfloat16; twice over, also in float32."""

BAND = 32 << 10
"""Bytes of a band: more than a tile's rows, since what is just past the end is what a wrong tail touches."""

ALIGNMENT = 1024
FIRST = 64 << 20
"""Bytes of the first allocation."""

Band = tuple[bool, Tensor]
"""Whether a tensor lies before it, and its words."""


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
        return [(stop > 0, self.words[stop // 2 : start // 2]) for stop, start in zip(stops, starts, strict=True)]

    def restore(self) -> None:
        """Takes everything back and makes it all band again."""
        if self._taken:
            self.words[: (self._taken[-1][1] + BAND) // 2].fill_(PATTERN)
            self._taken.clear()


class Arena:
    """Guarded memory that is handed out in order and taken back all at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._segments = [Segment(FIRST, device)]
        self._gaps: list[tuple[Tensor, Tensor]] = []

    def take(self, size: int, shift: int = 0) -> Tensor:
        """`size` bytes, `shift` bytes past a multiple of ALIGNMENT, as int16 words (size rounded up)."""
        found = self._segments[-1].take(size, shift)
        if found is None:
            have = 2 * self._segments[-1].words.numel()
            self._segments.append(Segment.around(2 * (have + size), self._device))
            found = self._segments[-1].take(size, shift)
            assert found is not None
        return found

    def bands(self) -> list[Band]:
        """The bands around all that was handed out."""
        gathered = ((True, words[gaps]) for words, gaps in self._gaps)
        return [*(band for segment in self._segments for band in segment.bands()), *gathered]

    def watch(self, words: Tensor, gaps: Tensor) -> None:
        """These of the words lie in the gaps between a tensor's rows: they are band too."""
        self._gaps.append((words, gaps))

    def restore(self) -> None:
        """Takes all tensors back and makes all memory band again."""
        self._gaps.clear()
        del self._segments[:-1]
        self._segments[-1].restore()


def written(band: Tensor) -> Tensor:
    """Whether a band is no longer what it was, as a tensor: many are looked at in one transfer."""
    return (band != PATTERN).any()


def damage(bands: Sequence[Band], flags: Sequence[bool] | None = None) -> str | None:
    """The first band that was written, in words; `flags` says which are, where that is known already."""
    if flags is None:
        flags = torch.stack([written(words) for _, words in bands]).tolist() if bands else []
    return next((_describe(*band) for band, flag in zip(bands, flags, strict=True) if flag), None)


def _describe(after_tensor: bool, words: Tensor) -> str:
    where = (words != PATTERN).nonzero().flatten()
    first, last = 2 * int(where[0]), 2 * int(where[-1])
    if after_tensor and first < BAND // 2:
        return f"{2 * len(where)} bytes past a tensor's end were written, nearest at +{first}"
    return f"{2 * len(where)} bytes before a tensor were written, nearest {2 * words.numel() - last} before it"
