"""What the gate's benches have in common on every kind of device: where tensors lie, what precedes a launch, and the
instruments that are built like variants."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.forge.toolchain import Toolchain
from autotuner.ops import op_of
from autotuner.ops.tensors import FAR, Tensors, distinct, far_apart, gaps_of, lying_in, moved, span
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault

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
    return moved(op.tensors().inputs(problem, op.cases.between_distribution, seed=0), torch_device)


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


def instrument(backend: str, name: str, parameters: Mapping[str, Value], toolchain: Toolchain) -> LoadedVariant:
    """What the harness itself runs on a device, of kernels/instruments. Raises ToolchainError when it cannot be
    built."""
    family = Family.load(config.kernels_dir() / "instruments")
    variant = Variant(family="instruments", backend=backend, impl=name, parameters=dict(parameters))
    built = build(family, variant, None, toolchain)
    if isinstance(built, Fault):
        raise ToolchainError(f"the instruments cannot be built: {built.detail}")
    return LoadedVariant(built)
