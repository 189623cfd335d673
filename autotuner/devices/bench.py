"""What the gate's benches have in common on every kind of device: where tensors lie, what precedes a launch, and the
instruments that are built like variants."""

import mmap
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops import op_of
from autotuner.ops.tensors import FAR, Tensors, distinct, far_apart, gaps_of, lying_in, moved, span
from autotuner.values.problem import Problem

FILLS = (0x7FFF7FFF, 0x7BFF7BFF, 0)
"""Words that the workspace, and shared memory on CUDA, hold before a launch: a NaN, a large number, zero. Two are not
zero, because fmaxf drops a NaN."""


def held_by_process() -> dict[str, int]:
    """What this process holds of its machine. A mapping that is shared is none of the private bytes; memory that malloc
    had reserved is no new address."""
    pages = [int(each) for each in Path("/proc/self/statm").read_text().split()]
    return {
        "bytes of memory": pages[5] * mmap.PAGESIZE,
        "bytes of addresses": pages[0] * mmap.PAGESIZE,
        "open files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


@lru_cache(maxsize=4)
def predecessor(problem: Problem, torch_device: str) -> Tensors:
    """Inputs, on the device, for what runs before a launch to leave its traces."""
    op = op_of(problem)
    return moved(op.tensors().inputs(problem, op.cases.demanding, seed=0), torch_device)


def copied_into(memory: Tensor, tensor: Tensor, watch: Callable[[Tensor], None]) -> Tensor:
    """The tensor's copy in that memory, with its strides. `watch` is told which words of the memory lie in the gaps
    between rows, where there are any."""
    gaps = gaps_of(tensor) if span(tensor) != tensor.numel() else None
    if gaps is not None:
        watch(gaps.repeat_interleave(tensor.element_size() // memory.element_size()))
    found = lying_in(memory, tensor)
    distinct(found).copy_(distinct(tensor))
    return found


def far_in(memory: Callable[[int], Tensor], tensor: Tensor, dim: int) -> Tensor:
    """The tensor's copy, far apart along that dimension, in as many bytes as `memory` is asked for. What lies before
    its first element is there too: an offset that is below zero for having wrapped finds other numbers, not nothing."""
    like, size = far_apart(tensor, dim), tensor.element_size()
    found = lying_in(memory((FAR + span(like)) * size)[FAR * size :], like)
    return found.copy_(tensor)


def workspace_bytes(variant: LoadedVariant, problem: Problem, most: int) -> int:
    """What the variant asks for. Raises MemoryError when that is more than `most` bytes."""
    wanted = variant.workspace_bytes(problem)
    if not 0 <= wanted <= most:
        raise MemoryError(f"the variant asks for {wanted} bytes of workspace; at most {most} are given")
    return wanted


LONG_ENOUGH_S = {"cpu": 0.3, "cuda": 0.1}
"""Seconds for which each product and copy is repeated, by the kind of torch device: the best of many short ones finds a
calm moment, which a GPU has always."""


def rate(dtype: torch.dtype, size: int, device: str, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Operations a second of a product of two square matrices."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / least(lambda: seconds(lambda: torch.mm(a, b, out=out)), device)


def bandwidth(count: int, device: str, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Bytes a second, read and written."""
    source = random_bytes(count, device)
    target = torch.empty_like(source)
    return 2 * source.numel() / least(lambda: seconds(lambda: target.copy_(source)), device)


def random_bytes(count: int, device: str) -> torch.Tensor:
    """Nearly so many, drawn eight at a time: one by one takes longer than all that is measured with them."""
    return torch.empty(count // 8, dtype=torch.int64, device=device).random_().view(torch.uint8)


def least(seconds: Callable[[], float], device: str = "cpu") -> float:
    """The fewest seconds that the work took in LONG_ENOUGH_S."""
    until = time.perf_counter() + LONG_ENOUGH_S[device]
    best = seconds()
    while time.perf_counter() < until:
        best = min(best, seconds())
    return best
