"""What a baseline is given beside its inputs, such as a mask, what an audit writes between two forwards, and input sets
that get other inputs together: what they hold, what they give, and which input was changed."""

import random

import pytest
import torch
from torch import Tensor

from autotuner.devices.bench import FILLS
from autotuner.devices.cuda import timing as cuda
from autotuner.devices.refills import Buffers, Refills
from autotuner.devices.renewed import RenewedSets
from autotuner.ops import op_of
from autotuner.ops.op import Baseline
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import BASELINES, inputs, reference
from autotuner.ops.tensors import Tensors, all_same_bits
from autotuner.values.problem import Problem
from tests.helpers.operations import operations

PROBLEM = SdpaProblem.parse("(6,2,5x40,16) float32 lengths")
assert isinstance(PROBLEM, SdpaProblem)
PLAIN = inputs(PROBLEM, "ragged", 1)


class Watched:
    """A baseline that looks at what it is given."""

    def __init__(self) -> None:
        self.calls, self.made, self.orders = 0, 0, set[tuple[int, ...]]()
        self.addresses: set[int] = set()
        self.baseline = Baseline(lambda problem: self._forward, frozenset({"cpu"}), beside=self._beside)

    def _forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, beside: Tensor) -> Tensors:
        assert torch.equal(beside, 2 * lengths)
        self.calls += 1
        self.orders.add(tuple(lengths.tolist()))
        self.addresses.add(beside.data_ptr())
        return (q,)

    def _beside(self, problem: Problem, given: Tensors) -> Tensors:
        self.made += 1
        return (2 * given[3],)


def test_a_graph_finds_it_where_it_was_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "elapsed", lambda work: (work(), 1e-3)[1])
    monkeypatch.setattr(cuda, "make_arm", cuda.EventArm)
    monkeypatch.setattr(cuda, "own_work_s", lambda: 0.0)
    watched, sets = Watched(), cuda.CudaInputSets(PROBLEM, PLAIN, "cold", 8192)
    arm = cuda.BaselineArm(watched.baseline, sets)
    for _ in range(6):
        arm()
        sets.renew()  # as a variant's arm does
    assert len(watched.addresses) == 1
    assert len(watched.orders) > 2


@pytest.mark.parametrize("name", ["flash", "math"])
@pytest.mark.parametrize(
    "text", ["(2,2,9x40,16) float32 lengths", "(2,2,9x40,16) float32 causal bottom_right lengths lse"]
)
def test_attention_makes_its_mask_there_and_not_in_its_forward(name: str, text: str) -> None:
    problem = SdpaProblem.parse(text)
    assert isinstance(problem, SdpaProblem)
    baseline, given = BASELINES[name], inputs(problem, "randn", 1)
    beside = baseline.beside(problem, given)
    forward = baseline.forward(problem)
    assert "aten.arange.default" in operations(lambda: baseline.beside(problem, given))
    assert not {"aten.arange.default", "aten.lt.Tensor"} & set(operations(lambda: forward(*given, *beside)))


# What an audit writes between two forwards ----------------------------------------------------------------------------


SHORT = SdpaProblem.parse("(1,2,20,64) float32")
MIB = 1 << 20


def buffers(workspace_bytes: int) -> Buffers:
    """Of a forward that wrote 1 into its outputs and 2 into its workspace."""
    tensors = op_of(SHORT).tensors()
    inputs = tensors.inputs(SHORT, "randn", 0)
    outputs = tuple(torch.ones_like(each) for each in tensors.outputs(SHORT, inputs))
    return Buffers(inputs, outputs, (torch.full((workspace_bytes // 4,), 2, dtype=torch.int32),))


def refilled(held: Buffers, wanted: int) -> Refills:
    return Refills(SHORT, held, tuple(each.clone() for each in held.inputs), held.most_calls(wanted))


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


# Input sets that get other inputs together ----------------------------------------------------------------------------


FULL = SdpaProblem.parse("(2,3,5x9,64) float32 full")
GIVEN_FIRST = inputs(FULL, "randn", 1)
ANSWER = reference(FULL, GIVEN_FIRST)


def sets_of(count: int) -> RenewedSets:
    stacked = tuple(torch.zeros(count, *each.shape) for each in GIVEN_FIRST)
    found = RenewedSets(FULL, GIVEN_FIRST, stacked, random.Random(3))
    found.restore()
    return found


def given(sets: RenewedSets, count: int) -> Tensors:
    into = tuple(each.new_empty(count, *each.shape) for each in ANSWER)
    sets.outputs(ANSWER, into)
    return into


@pytest.mark.parametrize("count", [1, 4])
def test_every_set_has_the_plain_inputs_or_others_whose_outputs_are_known(count: int) -> None:
    sets = sets_of(count)
    assert all(torch.equal(each, plain.expand_as(each)) for each, plain in zip(sets.stacked, GIVEN_FIRST, strict=True))
    assert torch.equal(given(sets, count)[0], ANSWER[0].expand(count, *ANSWER[0].shape))
    sets.renew()
    for row, due in enumerate(given(sets, count)[0]):
        own = tuple(each[row] for each in sets.stacked)
        assert not torch.equal(own[1], GIVEN_FIRST[1])
        assert torch.allclose(reference(FULL, own)[0], due)
    others = inputs(FULL, "randn", 2)
    sets.restore(others)
    assert all(torch.equal(each[-1], other) for each, other in zip(sets.stacked, others, strict=True))


@pytest.mark.parametrize("is_renewed", [False, True])
def test_the_first_input_that_changed_is_named(is_renewed: bool) -> None:
    sets = sets_of(2)
    if is_renewed:
        sets.renew()
    assert sets.changed() is None
    for place, name in ((2, "V"), (1, "K")):
        sets.stacked[place][-1, 0, 0, 0, 0] = 9
        assert sets.changed() == f"{name} of a timed set changed while it was timed"
