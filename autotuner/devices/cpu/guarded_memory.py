"""Guarded memory on the CPU: each tensor ends at addresses at which nothing is, so that an overrun is a crash, not a
wrong number. They are so many that an access far past a tensor reaches no other memory either.

    | WIDE bytes of nothing | slack, filled with a pattern | tensor | WIDE bytes of nothing |

What lies before the tensor on its own pages is checked for the pattern afterwards.
"""

import ctypes
import mmap
import random
import weakref

import torch
from torch import Tensor

from autotuner.devices.bench import copied_into
from autotuner.ops.tensors import span
from autotuner.values.errors import DeviceFullError

PAGE = mmap.PAGESIZE
PATTERN = 0xA5
PATTERNS = bytes([PATTERN]) * (2 * PAGE)
"""As many as there are around a tensor, or more."""
GAP = 0xFF
"""The byte of the gaps between a tensor's rows: a NaN in every element type."""
ALIGNMENT = 64
PROT_NONE, NO_RESERVE = 0, 0x4000
"""Of sys/mman.h: no access; what is never touched counts as no memory."""
WIDE, SPREAD = 2 << 30, 1 << 30
"""Bytes of addresses on each side of a slab, and at random more before it: what depends on an address differs within a
process. They cost no memory; a process has 128 TiB of them, and may have 18,000 slabs."""
SAME = 3
"""Launches in a row whose tensors lie at the same addresses, so that an answer kept by address is found too."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _between_nothing(size: int, place: float) -> memoryview:
    """`size` bytes of zeros, whole pages, between WIDE bytes of addresses at which nothing is. `place`, from 0 to 1, is
    where in SPREAD. Raises OSError."""
    kind = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NO_RESERVE
    base = _libc.mmap(None, size + 2 * WIDE + SPREAD, PROT_NONE, kind, -1, 0)
    if base == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "no addresses for a guarded tensor")
    start = base + WIDE + int(place * (SPREAD // PAGE)) * PAGE
    memory = (ctypes.c_char * size).from_address(start)
    weakref.finalize(memory, _libc.munmap, base, size + 2 * WIDE + SPREAD).atexit = False
    if _libc.mprotect(start, size, mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "no memory for a guarded tensor")
    return memoryview(memory).cast("B")


class Slab:
    """`size` bytes between addresses at which nothing is, `shift` bytes past a multiple of ALIGNMENT.

    An unshifted tensor of a multiple of 16 bytes touches those past it; otherwise fewer than ALIGNMENT bytes, which
    hold the pattern, lie between. With `first` it touches those before it. What the bytes themselves hold is for others
    to say.
    """

    def __init__(
        self, size: int, shift: int = 0, first: bool = False, alignment: int = 16, place: float | None = None
    ) -> None:
        pages = -(-(size + 2 * ALIGNMENT + shift) // PAGE)
        self._map = _between_nothing(pages * PAGE, random.random() if place is None else place)
        self._usable = torch.frombuffer(self._map, dtype=torch.uint8)
        # Unshifted, it lies as close to the end as the ABI's alignment allows.
        end = pages * PAGE
        step = ALIGNMENT if shift else alignment
        start = shift if first else (end - size - shift) // step * step + shift
        self._start, self._stop = start, (stop := start + size)
        self.bytes = self._usable[start:stop]
        self._map[:start], self._map[stop:] = PATTERNS[:start], PATTERNS[: end - stop]
        self._gaps: Tensor | None = None

    def damaged(self) -> str | None:
        """Where the pattern around the tensor was overwritten, in words."""
        around = bytes(self._map[: self._start]) + self._map[self._stop :]
        if self._gaps is None and around == PATTERNS[: len(around)]:
            return None
        before = (self._usable[: self._start] != PATTERN).nonzero().flatten()
        after = (self._usable[self._stop :] != PATTERN).nonzero().flatten()
        if len(before):
            near = self._start - int(before[-1])
            return f"{len(before)} bytes before the tensor were written, nearest {near} before it"
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


def untouched(size: int) -> Tensor:
    """`size` bytes of zeros, of which only the pages that are touched cost memory. Raises DeviceFullError."""
    try:
        return torch.frombuffer(_between_nothing(-(-size // PAGE) * PAGE, random.random()), dtype=torch.uint8)[:size]
    except OSError as error:
        raise DeviceFullError(f"{size >> 30} GiB of addresses: {error.strerror}") from None


class Slabs(list[Slab]):
    """Those in use together. In SAME such uses in a row they lie at the same places."""

    def __init__(self) -> None:
        self._places, self._uses = random.Random(), 0
        self._first = self._places.getstate()

    def take(self, size: int, shift: int = 0, first: bool = False, alignment: int = 16) -> Slab:
        """Another one."""
        self.append(slab := Slab(size, shift, first, alignment, self._places.random()))
        return slab

    def place(self, tensor: Tensor, shift: int = 0, first: bool = False) -> Tensor:
        """A copy in a slab of its own, with its strides; the gaps between its rows are watched. No page fault is left
        for who uses it."""
        slab = self.take(span(tensor) * tensor.element_size(), shift, first)
        return copied_into(slab.bytes, tensor, slab.watch)

    def clear(self) -> None:
        """None is in use any more."""
        super().clear()
        self._uses += 1
        if self._uses % SAME:
            self._places.setstate(self._first)
        else:
            self._first = self._places.getstate()

    def damaged(self) -> str | None:
        """What was written around one of them, in words."""
        return next((text for slab in self if (text := slab.damaged())), None)


def seal(tensor: Tensor) -> None:
    """From now on a write to a tensor that lies here is a crash. Raises OSError."""
    memory = tensor.untyped_storage()
    if _libc.mprotect(memory.data_ptr(), memory.nbytes(), mmap.PROT_READ):
        raise OSError(ctypes.get_errno(), "a tensor cannot be made read-only")
