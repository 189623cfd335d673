"""What the gate's benches have in common on every kind of device: what precedes a launch."""

from __future__ import annotations

from functools import lru_cache

from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, moved
from autotuner.values.problem import Problem

FILLS = (0x7FFF7FFF, 0x7BFF7BFF, 0)
"""Words that the workspace, and shared memory on CUDA, hold before a launch: a NaN, a large number, zero. Two are not
zero, because fmaxf drops a NaN."""


@lru_cache(maxsize=4)
def predecessor(problem: Problem, torch_device: str) -> Tensors:
    """Inputs, on the device, for what runs before a launch to leave its traces."""
    op = op_of(problem)
    return moved(op.tensors().inputs(problem, op.cases.between_distribution, seed=0), torch_device)


def workspace_bytes(variant: LoadedVariant, problem: Problem, most: int) -> int:
    """What the variant asks for. Raises MemoryError when that is more than `most` bytes."""
    wanted = variant.workspace_bytes(problem)
    if not 0 <= wanted <= most:
        raise MemoryError(f"the variant asks for {wanted} bytes of workspace; at most {most} are given")
    return wanted
