"""Guarded memory on CUDA: tensors in one allocation, between bands of NaN.

    | band | tensor | band | tensor | ... | band |

A read past a tensor's end brings a NaN into the output, a write is found in the band.
"""

from __future__ import annotations

import torch
from torch import Tensor

PATTERN = 0x7FA5
"""A NaN with a payload, in float16 and in bfloat16; twice over, also in float32."""

BAND = 32 << 10
"""Bytes of a band: more than a tile's rows, since what is just past the end is what a wrong tail touches."""

ALIGNMENT = 1024
FIRST = 64 << 20
"""Bytes of the first allocation."""


class _Segment:
    """One allocation, handed out in order."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.words = torch.full((size // 2,), PATTERN, dtype=torch.int16, device=device)
        self.taken: list[tuple[int, int]] = []

    def take(self, size: int, shift: int) -> Tensor | None:
        """The next `size` bytes as words; None when they do not fit."""
        end = self.taken[-1][1] if self.taken else 0
        start = -(-(end + BAND) // ALIGNMENT) * ALIGNMENT + shift
        stop = start + -(-size // 2) * 2
        if 2 * self.words.numel() < stop + BAND:
            return None
        self.taken.append((start, stop))
        return self.words[start // 2 : stop // 2]

    def bands(self) -> list[tuple[int, Tensor]]:
        """Start and words of each stretch beside and between what was handed out."""
        if not self.taken:
            return []
        stops = [0, *(stop for _, stop in self.taken)]
        starts = [*(start for start, _ in self.taken), self.taken[-1][1] + BAND]
        return [(stop, self.words[stop // 2 : start // 2]) for stop, start in zip(stops, starts, strict=True)]

    def restore(self) -> None:
        """Takes everything back and makes it all band again."""
        if self.taken:
            self.words[: (self.taken[-1][1] + BAND) // 2].fill_(PATTERN)
            self.taken.clear()


class Arena:
    """Guarded memory that is handed out in order and taken back all at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._segments = [_Segment(FIRST, device)]

    def take(self, size: int, shift: int = 0) -> Tensor:
        """`size` bytes, `shift` bytes past a multiple of ALIGNMENT, as int16 words (size rounded up)."""
        found = self._segments[-1].take(size, shift)
        if found is None:
            have = 2 * self._segments[-1].words.numel()
            self._segments.append(_Segment(2 * (have + size) + 2 * (BAND + ALIGNMENT), self._device))
            found = self._segments[-1].take(size, shift)
            assert found is not None
        return found

    def damage(self) -> str | None:
        """Which band was written, in words; takes all tensors back and restores the bands."""
        bands = [band for segment in self._segments for band in segment.bands()]
        if not bands:
            return None
        counts = torch.stack([(words != PATTERN).sum() for _, words in bands]).tolist()
        found = [_describe(start, words, int(n)) for (start, words), n in zip(bands, counts, strict=True) if n]
        del self._segments[:-1]
        self._segments[-1].restore()
        return found[0] if found else None


def _describe(start: int, words: Tensor, count: int) -> str:
    where = (words != PATTERN).nonzero().flatten()
    first, last = 2 * int(where[0]), 2 * int(where[-1])
    if start and first < BAND // 2:
        return f"{2 * count} bytes past a tensor's end were written, nearest at +{first}"
    return f"{2 * count} bytes before a tensor were written, nearest {2 * words.numel() - last} before it"
