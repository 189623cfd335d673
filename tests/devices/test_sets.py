"""Sets of inputs and outputs in the memory of each kind of device; that of a GPU lies on the CPU here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autotuner.devices.cpu.timing import CpuSets, Slabs
from autotuner.devices.cuda.timing import CudaSets, Rows
from autotuner.devices.sets import InputSets, Outputs
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference

PROBLEM = SdpaProblem(batch=2, heads=3, seq_q=5, seq_k=9, head_dim=64, dtype="float32")
PLAIN = inputs(PROBLEM, "randn", 1)

kinds = pytest.mark.parametrize(("kind", "memory"), [(CpuSets, Slabs), (CudaSets, Rows)])


def groups_of(sets: InputSets) -> range:
    return range(len(sets.memory.groups))


@kinds
def test_inputs_differ_from_set_to_set_and_from_sample_to_sample(kind: Any, memory: Any) -> None:
    sets: InputSets = kind(PROBLEM, PLAIN, "cold", 1 << 14)
    groups = groups_of(sets)
    sets.renew(groups)
    first = [each[0].clone() for each in sets.inputs]
    assert len(sets) > 2
    assert not any(torch.equal(first[0], other) for other in first[1:])
    sets.renew(groups)
    assert not any(torch.equal(now[0], then) for now, then in zip(sets.inputs, first, strict=True))
    assert sets.changed(groups) is None
    sets.inputs[1][2].view(torch.int32)[0, 1, 2, 3] ^= 1
    assert sets.changed(groups) == "V of a timed set changed while it was timed"
    sets.restore(groups)
    assert sets.changed(groups) is None
    assert all(torch.equal(now, then) for each in sets.inputs for now, then in zip(each, PLAIN, strict=True))


@kinds
def test_an_output_is_the_one_that_the_inputs_of_its_set_make(kind: Any, memory: Any) -> None:
    sets: InputSets = kind(PROBLEM, PLAIN, "cold", 1 << 14)
    outputs, groups = Outputs(sets, memory(len(sets), sets.fresh_outputs())), groups_of(sets)
    used, plain = dict.fromkeys(groups, slice(None)), reference(PROBLEM, *PLAIN)[:1]
    plain = tuple(each.float() for each in plain)
    sets.renew(groups)
    outputs.poison(groups)
    assert bool(outputs.unlike(plain, used))
    for group in groups:
        sets.outputs(group, plain, outputs.memory.groups[group])
    assert not bool(outputs.unlike(plain, used))
    for given, output in zip(sets.inputs, outputs.tensors, strict=True):
        assert torch.allclose(output[0], reference(PROBLEM, *given)[0].float(), atol=1e-5)
    outputs.tensors[1][0][0, 1, 2, 3] = 7
    assert bool(outputs.unlike(plain, used))
    assert outputs.memory.damage() is None
