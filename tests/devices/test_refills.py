"""What an audit writes between two forwards, and how much memory that takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autotuner.devices.bench import FILLS
from autotuner.devices.refills import MOST_BYTES, Buffers, Refills
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, all_same_bits

PROBLEM = SdpaProblem.parse("(1,2,20,64) float32")
MIB = 1 << 20


class Made(TorchDispatchMode):
    """Adds up the bytes of tensors that are made by empty_like and clone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.empty_like.default, torch.ops.aten.clone.default):
            self.bytes += found.nbytes
        return found


def buffers(workspace_bytes: int) -> Buffers:
    """Of a forward that wrote 1 into its outputs and 2 into its workspace."""
    tensors = op_of(PROBLEM).tensors()
    inputs = tensors.inputs(PROBLEM, "randn", 0)
    outputs = tuple(torch.ones_like(each) for each in tensors.outputs(PROBLEM, inputs))
    return Buffers(inputs, outputs, (torch.full((workspace_bytes // 4,), 2, dtype=torch.int32),))


def refilled(held: Buffers, wanted: int) -> Refills:
    return Refills(PROBLEM, held, tuple(each.clone() for each in held.inputs), held.most_calls(wanted))


@pytest.mark.parametrize("workspace", [4 * MIB, 64 * MIB])
def test_a_large_workspace_takes_little_memory_and_no_forwards(workspace: int) -> None:
    held = buffers(workspace)
    with Made() as made:
        refills = refilled(held, 120)
    assert refills.calls == 120
    assert 2 * made.bytes < MOST_BYTES + 4 * workspace  # of the variant and the baseline, each of which holds its own


def test_inputs_and_outputs_bound_the_forwards_of_a_sample() -> None:
    large = torch.empty(MOST_BYTES // 8, dtype=torch.uint8)  # never touched, so it takes no memory
    assert Buffers((large,), (), ()).most_calls(120) == 4
    assert Buffers((large,), (large, large), ()).most_calls(120) == 2


@pytest.mark.parametrize("workspace", [0, 4096, MIB])
def test_every_forward_finds_fresh_inputs_and_poison(workspace: int) -> None:
    held = buffers(workspace)
    refills = refilled(held, 4)
    seen: list[Tensors] = [tuple(each.clone() for each in held.inputs)]
    for _ in range(2):
        refills.load(fresh=True)
        for call in range(refills.calls):
            held.workspace[0].fill_(2)  # what the forward before left there
            refills.put(call)
            assert not any(all_same_bits(held.inputs, each) for each in seen)
            assert all(bool(each.isnan().all()) for each in held.outputs)
            assert set(held.workspace[0].unique().tolist()) <= set(FILLS)
            seen.append(tuple(each.clone() for each in held.inputs))
    refills.load(fresh=False)
    for call in range(refills.calls):
        for each in held.all:
            each.zero_()
        refills.put(call)
        assert all_same_bits(held.inputs, seen[0])
        assert all(bool((each == 1).all()) for each in held.outputs)
        assert bool((held.workspace[0] == 2).all())
