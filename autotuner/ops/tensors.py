"""What every op's tensors share: element types, sums in an order of one's own, bitwise comparison."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product
from typing import Protocol

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
"""The inputs, or the outputs, of one call, in the op's order."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CACHED = 1 << 18
"""Elements of its result that a plain product on the CPU takes at a time: they stay in the cache."""


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
    inputs are drawn one by one they are as good as fresh ones, at the price of a copy."""
    draw = random.Random(seed)
    return tuple(each.flatten().roll(draw.randrange(1, max(2, each.numel()))).view(each.shape) for each in tensors)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True when the tensors hold the same bits."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def all_same_bits(a: Tensors, b: Tensors) -> bool:
    """True when each pair of tensors holds the same bits."""
    return all(same_bits(one, other) for one, other in zip(a, b, strict=True))


@contextmanager
def on_one_thread() -> Iterator[None]:
    """torch computes on one CPU in the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    with on_one_thread() if on_cpu else nullcontext():
        for first, row in product(range(0, a.shape[0], matrices), range(0, a.shape[1], rows)):
            some = slice(first, first + matrices)
            part, terms = total[some, row : row + rows], a[some, row : row + rows].split(1, 2)
            factors = b[some].split(1, 1)
            for index in range(len(terms)) if order is None else order:
                part.addcmul_(terms[index], factors[index])
    return total.view(shape)
