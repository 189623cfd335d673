"""Input sets that get other inputs together: what they hold, what they give, and which input was changed."""

import random

import pytest
import torch

from autotuner.devices.renewed import RenewedSets
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference
from autotuner.ops.tensors import Tensors

PROBLEM = SdpaProblem.parse("(2,3,5x9,64) float32 full")
PLAIN = inputs(PROBLEM, "randn", 1)
GIVEN = reference(PROBLEM, PLAIN)


def sets_of(count: int) -> RenewedSets:
    stacked = tuple(torch.zeros(count, *each.shape) for each in PLAIN)
    found = RenewedSets(PROBLEM, PLAIN, stacked, random.Random(3))
    found.restore()
    return found


def given(sets: RenewedSets, count: int) -> Tensors:
    into = tuple(each.new_empty(count, *each.shape) for each in GIVEN)
    sets.outputs(GIVEN, into)
    return into


@pytest.mark.parametrize("count", [1, 4])
def test_every_set_has_the_plain_inputs_or_others_whose_outputs_are_known(count: int) -> None:
    sets = sets_of(count)
    assert all(torch.equal(each, plain.expand_as(each)) for each, plain in zip(sets.stacked, PLAIN, strict=True))
    assert torch.equal(given(sets, count)[0], GIVEN[0].expand(count, *GIVEN[0].shape))
    sets.renew()
    for row, due in enumerate(given(sets, count)[0]):
        own = tuple(each[row] for each in sets.stacked)
        assert not torch.equal(own[1], PLAIN[1])
        assert torch.allclose(reference(PROBLEM, own)[0], due)
    others = inputs(PROBLEM, "randn", 2)
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
