"""What an audit writes between two forwards, and how much memory that takes."""

import pytest
import torch

from autotuner.devices.bench import FILLS
from autotuner.devices.refills import Buffers, Refills
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, all_same_bits

PROBLEM = SdpaProblem.parse("(1,2,20,64) float32")
MIB = 1 << 20


def buffers(workspace_bytes: int) -> Buffers:
    """Of a forward that wrote 1 into its outputs and 2 into its workspace."""
    tensors = op_of(PROBLEM).tensors()
    inputs = tensors.inputs(PROBLEM, "randn", 0)
    outputs = tuple(torch.ones_like(each) for each in tensors.outputs(PROBLEM, inputs))
    return Buffers(inputs, outputs, (torch.full((workspace_bytes // 4,), 2, dtype=torch.int32),))


def refilled(held: Buffers, wanted: int) -> Refills:
    return Refills(PROBLEM, held, tuple(each.clone() for each in held.inputs), held.most_calls(wanted))


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
