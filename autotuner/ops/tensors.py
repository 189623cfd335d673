"""What every op's tensors share: element types, sums in an order of one's own, bitwise comparison."""

import ctypes
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import combinations, product
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from autotuner.values.errors import DeviceFullError, first_line

Tensors = tuple[Tensor, ...]
"""The inputs, or the outputs, of one call, in the op's order."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WORD = torch.int64
OMP_PAUSE_HARD = 2
FAR = 1 << 31
"""Elements: the first offset that no 32-bit integer with a sign holds; twice as many hold none without one."""
CACHED = 1 << 18
"""Elements of its result that a plain product on the CPU takes at a time: they stay in the cache."""
DRAWN_AT_ONCE = 1 << 21
"""Numbers that one generator draws where more are asked for."""


class Symmetry(Protocol):
    """Exact symmetries of an op, one a set: where a right kernel gives `outputs` on `inputs`, it gives the other
    outputs on the other inputs, to the last bit but for the sign of zeros.

    `into` are tensors with one more dimension in front, the sets; they are overwritten.
    """

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        """The other inputs of every set."""

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        """What they give in every set."""


def shifted(tensors: Tensors, seed: int) -> Tensors:
    """Other tensors with the same numbers, each shifted by a number of elements of its own: for an op whose ordinary
    inputs are drawn one by one they are as good as fresh ones, at the price of a copy. They are dense."""
    draw = random.Random(seed)
    return tuple(each.flatten().roll(draw.randrange(1, max(2, each.numel()))).view(each.shape) for each in tensors)


def normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Standard normal numbers. Many are drawn in parts, by as many threads as there are CPUs, which do not matter to
    what is drawn."""
    if math.prod(shape) <= DRAWN_AT_ONCE:
        return torch.randn(shape, generator=generator)
    found = torch.empty(shape)
    parts = found.view(-1).split(DRAWN_AT_ONCE)
    seeds = torch.randint(2**62, (len(parts),), generator=generator).tolist()
    with ThreadPoolExecutor(min(len(parts), len(os.sched_getaffinity(0)))) as pool:
        for _ in pool.map(lambda part, seed: part.normal_(generator=torch.Generator().manual_seed(seed)), parts, seeds):
            pass
    return found


def span(tensor: Tensor) -> int:
    """Elements from the first to the last one, those between them that are not the tensor's included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def lying_in(memory: Tensor, like: Tensor) -> Tensor:
    """A tensor of `like`'s shape, strides and type in dense memory of any type that has `span(like)` elements."""
    typed = memory.view(like.dtype)
    return typed.as_strided(like.shape, like.stride(), typed.storage_offset())


def far_apart(tensor: Tensor, dim: int) -> Tensor:
    """A tensor of the same shape and type, without memory, that is dense, but for what makes rows begin at multiples of
    16 bytes, and along `dim`, which is not the last one and has several places. These lie so far apart that offsets
    wrap in 32 bits, with a sign and without."""
    others = (*tensor.shape[:dim], *tensor.shape[dim + 1 : -1], -(-tensor.shape[-1] // 8) * 8)
    strides = [math.prod(others[place + 1 :]) for place in range(len(others))]
    strides.insert(dim, 8 * (3 * FAR // (tensor.shape[dim] - 1) // 8 + 2))  # rows begin at multiples of 16 bytes
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="meta")


def together(tensors: Tensors) -> bool:
    """Whether two of the tensors, none of which has gaps, are not the same one and share memory."""
    places = {id(each): (each.untyped_storage().data_ptr(), each.storage_offset(), span(each)) for each in tensors}
    dense = [places[id(each)] for each in {id(each): each for each in tensors}.values() if span(each) == each.numel()]
    return any(
        one[0] == other[0] and one[1] < other[1] + other[2] and other[1] < one[1] + one[2]
        for one, other in combinations(dense, 2)
    )


def whole(tensor: Tensor) -> Tensor:
    """All of the memory that the tensor is a view of, dense."""
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)


def empty_like(tensor: Tensor) -> Tensor:
    """A tensor of the same shape, strides and type, with gaps where the tensor has gaps."""
    return lying_in(tensor.new_empty(span(tensor)), tensor)


def distinct(tensor: Tensor) -> Tensor:
    """The tensor without the dimensions along which all elements share a place: what can be written."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def gaps_of(tensor: Tensor) -> Tensor | None:
    """Which places between the first and the last element are not the tensor's, in order; None where all are."""
    one, own = distinct(tensor), torch.zeros(span(tensor), dtype=torch.bool, device=tensor.device)
    own.as_strided(one.shape, one.stride()).fill_(True)
    return None if bool(own.all()) else ~own


def moved(tensors: Tensors, device: str | torch.device) -> Tensors:
    """The tensors on a device. They lie there as they do here, and what shares memory here shares it there."""
    if all(tensor.device == torch.device(device) for tensor in tensors):
        return tensors
    memory: dict[int, Tensor] = {}
    found = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in memory:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            memory[storage.data_ptr()] = whole.to(device)
        there = memory[storage.data_ptr()].untyped_storage()
        place = (tensor.storage_offset(), tensor.shape, tensor.stride())
        found.append(torch.empty(0, dtype=tensor.dtype, device=device).set_(there, *place))
    return tuple(found)


def overwrite(tensors: Tensors, values: Tensors) -> None:
    """Each of the tensors gets the numbers of the other one."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def poison(tensors: Tensors) -> None:
    """Makes all numbers of the tensors NaN."""
    for tensor in tensors:
        tensor.fill_(torch.nan)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True when the tensors hold the same bits."""
    a, b = a.contiguous(), b.contiguous()
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    places = (each.storage_offset() * each.element_size() for each in (a, b))
    wide = all(size % WORD.itemsize == 0 for size in (a.nbytes, *places))
    # bytes one by one take seven times as long
    kind = WORD if wide else torch.uint8
    return torch.equal(a.flatten().view(kind), b.flatten().view(kind))


def all_same_bits(a: Tensors, b: Tensors) -> bool:
    """True when each pair of tensors holds the same bits."""
    return all(same_bits(one, other) for one, other in zip(a, b, strict=True))


def first_outputs(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
    """What two launches must have alike where all of the first output is to be."""
    return other[0], plain[0]


def so_many_times(factor: float) -> Callable[[Tensors, Tensors], tuple[Tensor, Tensor]]:
    """What two launches must have alike where the second's first output is a power of two times the first's: only sign
    and exponent change, but for outputs so small that they lose digits."""

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        got, want = other[0], factor * plain[0]
        numbers = torch.finfo(want.dtype)
        close = (got - want).abs() <= 4 * numbers.smallest_normal * numbers.eps
        return torch.where((want.abs() <= 4 * numbers.tiny) & close, want, got), want

    return compared


def where_lost(due: Tensor, touched: Tensor) -> Callable[[Tensors, Tensors], tuple[Tensor, Tensor]]:
    """What two launches must have alike where a number of the second's inputs is none: the first output is not finite
    where it is `due`, and the same where it is not `touched`. Both are of shapes that expand to the output's."""

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        want = torch.where(touched, 0, plain[0])
        return torch.where(due, other[0].isfinite().to(want.dtype), torch.where(touched, 0, other[0])), want

    return compared


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """torch computes on as many threads of this process in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def end_threads() -> None:
    """Ends the threads that torch computes on; it makes others when it needs them. A forked process would wait for the
    ones there are for ever, and a cage is put up around one thread and those that it starts."""
    for library in set(re.findall("/.*gomp.*", Path("/proc/self/maps").read_text(errors="surrogateescape"))):
        ctypes.CDLL(library).omp_pause_resource_all(OMP_PAUSE_HARD)


@contextmanager
def full_is_no_refusal() -> Iterator[None]:
    """A device without room raises DeviceFullError in the block. To torch that is a RuntimeError, by which a baseline
    says that it does not take a problem, or an error of the device; but another program may have the memory."""
    try:
        yield
    except RuntimeError as error:
        full = full_of(error)
        if full is None:
            raise
        raise full from None


def full_of(error: RuntimeError) -> DeviceFullError | None:
    """What torch says of a device without memory; None of any other error. Its allocator has a class for that, and a
    call of CUDA that fails for want of memory has none."""
    said = first_line(error)
    accelerator = isinstance(error, torch.AcceleratorError) and "out of memory" in said
    if not accelerator and not isinstance(error, torch.OutOfMemoryError):
        return None
    return DeviceFullError(f"the memory of the device is full: {said}")


def sums_in_order(terms: Tensor) -> Tensor:
    """The sum of each row, one float32 after the other: the last dimension becomes 1."""
    last = np.add.accumulate(terms.detach().cpu().numpy(), axis=-1)[..., -1:]
    return torch.from_numpy(np.ascontiguousarray(last)).to(terms.device)


def plain_product(a: Tensor, b: Tensor, order: Sequence[int] | None = None) -> Tensor:
    """a @ b in float32, term after term: the textbook order of summation, or `order`; the same on every machine and
    library.

    On one CPU: steps this small take longer to share out than to do, and many times as long when another program uses
    one of the CPUs.
    """
    shape = (*a.shape[:-1], b.shape[-1])
    a, b = a.flatten(0, -3), b.flatten(0, -3).contiguous()
    total = torch.zeros(a.shape[0], a.shape[1], b.shape[2], device=a.device)
    on_cpu = total.device.type == "cpu"
    rows = max(1, CACHED // b.shape[2] if on_cpu else total.numel())
    matrices = max(1, rows // a.shape[1])
    with on_threads(1) if on_cpu else nullcontext():
        for first, row in product(range(0, a.shape[0], matrices), range(0, a.shape[1], rows)):
            some = slice(first, first + matrices)
            part, terms = total[some, row : row + rows], a[some, row : row + rows].split(1, 2)
            factors = b[some].split(1, 1)
            for index in range(len(terms)) if order is None else order:
                part.addcmul_(terms[index], factors[index])
    return total.view(shape)
