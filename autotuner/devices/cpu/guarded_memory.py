"""Guarded memory on the CPU: each tensor ends at an unmapped page, so that an overrun is a crash, not a wrong number.

    | unmapped page | slack, filled with a pattern | tensor | unmapped page |

What lies before the tensor on its own pages is checked for the pattern afterwards.
"""

from __future__ import annotations

import ctypes
import mmap

import torch
from torch import Tensor

from autotuner.devices.bench import copied_into
from autotuner.ops.tensors import span

PAGE = mmap.PAGESIZE
PATTERN = 0xA5
PATTERNS = bytes([PATTERN]) * (2 * PAGE)
"""As many as there are around a tensor, or more."""
GAP = 0xFF
"""The byte of the gaps between a tensor's rows: a NaN in every element type."""
ALIGNMENT = 64
PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _protect(address: int) -> None:
    if _libc.mprotect(address, PAGE, PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect failed")


class Slab:
    """`size` bytes between two unmapped pages, `shift` bytes past a multiple of ALIGNMENT.

    An unshifted tensor of a multiple of 16 bytes touches the unmapped page; otherwise fewer than ALIGNMENT bytes, which
    hold the pattern, lie between. What the bytes themselves hold is for others to say.
    """

    def __init__(self, size: int, shift: int = 0) -> None:
        pages = -(-(size + 2 * ALIGNMENT + shift) // PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        whole = torch.frombuffer(self._map, dtype=torch.uint8)
        base = whole.data_ptr()
        self._usable = whole[PAGE : (pages + 1) * PAGE]
        # Unshifted, the tensor lies as close to the end as the ABI's 16-byte alignment allows.
        end = pages * PAGE
        step = 16 if shift == 0 else ALIGNMENT
        start = (end - size - shift) // step * step + shift
        self._start, self._stop = start, start + size
        self.bytes = self._usable[start : start + size]
        self._before, self._after = slice(PAGE, PAGE + start), slice(PAGE + start + size, PAGE + end)
        self._map[self._before], self._map[self._after] = PATTERNS[:start], PATTERNS[: end - start - size]
        self._gaps: Tensor | None = None
        _protect(base)
        _protect(base + (pages + 1) * PAGE)

    def damaged(self) -> str | None:
        """Where the pattern around the tensor was overwritten, in words."""
        around = self._map[self._before] + self._map[self._after]
        if self._gaps is None and around == PATTERNS[: len(around)]:
            return None
        before = (self._usable[: self._start] != PATTERN).nonzero().flatten()
        after = (self._usable[self._stop :] != PATTERN).nonzero().flatten()
        if len(before):
            return (
                f"{len(before)} bytes before the tensor were written, nearest {self._start - int(before[-1])} before it"
            )
        if len(after):
            return f"{len(after)} bytes past the tensor's end were written, nearest at +{int(after[0])}"
        if self._gaps is not None and (self.bytes[self._gaps] != GAP).any():
            count = int((self.bytes[self._gaps] != GAP).sum())
            return f"{count} bytes in the gaps between a tensor's rows were written"
        return None

    def watch(self, gaps: Tensor) -> None:
        """From now on these bytes must stay as they are made now."""
        self._gaps = gaps
        self.bytes[gaps] = GAP


def guarded(tensor: Tensor, shift: int = 0) -> tuple[Slab, Tensor]:
    """A copy in a slab of its own, with its strides; the gaps between its rows are watched."""
    slab = Slab(span(tensor) * tensor.element_size(), shift)
    return slab, copied_into(slab.bytes, tensor, slab.watch)
