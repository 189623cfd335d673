"""What every op must do, ours and one of another package: words that can be typed again, tensors that lie as they are
said to, baselines and emulation that agree with the reference, and an exact symmetry."""

from pathlib import Path

import pytest
import torch

from autotuner.ops import OPS
from autotuner.ops.op import Op, OpTensors
from autotuner.values.problem import Problem

PLUGINS = Path(__file__).parent.parent / "plugins"
PROBLEMS = {
    "sdpa": (
        "(3,6:2,9x40,64) float32 causal bottom_right lengths bshd lse",
        "(2,6:2,40x9,64) float32 causal",
        "(2,3,17,64) float32 packed lse",
        "(2,8:1,1x33,64) float32 lengths",
    ),
    "rmsnorm": ("(7,65) float32 eps=1e-3", "(6,33) float32"),
    "rowsum": ("(33,65) float32",),
    "softmax": ("(33,65) float32 temperature=0.5",),
    "swiglu": ("(33,65) float32",),
    "layernorm": ("(33,65) float32 eps=0.001",),
}
SETS = 3
each_problem = pytest.mark.parametrize(("name", "text"), [(name, text) for name in PROBLEMS for text in PROBLEMS[name]])


@pytest.fixture
def op(name: str, monkeypatch: pytest.MonkeyPatch) -> Op:
    monkeypatch.setattr(OPS, "_loaded", {})
    monkeypatch.syspath_prepend(PLUGINS)
    OPS.look_beside(name, PLUGINS.parent.parent / "examples" / "own_op")
    if name not in OPS:
        pytest.skip(f"the op {name} is not here")
    return OPS[name]


@pytest.fixture
def tensors(op: Op) -> OpTensors:
    return op.tensors()


@pytest.fixture
def problem(op: Op, text: str) -> Problem:
    return op.problem.parse(text)


@each_problem
def test_what_is_printed_can_be_typed(op: Op, problem: Problem) -> None:
    assert op.problem.parse(str(problem)) == problem
    assert op.problem.model_validate(problem.model_dump()) == problem


@each_problem
def test_inputs_and_outputs_lie_as_they_are_said_to(op: Op, tensors: OpTensors, problem: Problem) -> None:
    inputs = tensors.inputs(problem, op.ordinary, 3)
    assert len(inputs) == len(op.inputs(problem))
    assert len(tensors.outputs(problem, inputs)) == len(op.outputs(problem))
    assert all(
        torch.equal(one, other) for one, other in zip(inputs, tensors.inputs(problem, op.ordinary, 3), strict=True)
    )
    fresh = tensors.fresh(problem, inputs, 5)
    assert [each.shape for each in fresh] == [each.shape for each in inputs]
    assert not torch.equal(fresh[0], inputs[0])


@each_problem
def test_baselines_and_emulation_say_the_same_as_the_reference(op: Op, tensors: OpTensors, problem: Problem) -> None:
    inputs = tensors.inputs(problem, op.ordinary, 3)
    exact = tensors.reference(problem, inputs)
    here = [each for each in tensors.BASELINES.values() if "cpu" in each.devices and not each.made_for_each]
    assert here
    answers = [each.settled(problem, inputs, each.answer(problem, inputs)) for each in here]
    for found in (*answers, tensors.emulation(problem, inputs)):
        for one, other in zip(exact, found, strict=True):
            seen = one.isfinite() & (one != 0)  # of a row that sees nothing a baseline may say anything
            assert torch.allclose(one[seen], other.double()[seen], atol=1e-3, rtol=1e-4)


@each_problem
def test_the_symmetry_holds_of_the_reference(op: Op, tensors: OpTensors, problem: Problem) -> None:
    inputs = tensors.inputs(problem, op.ordinary, 3)
    plain = tensors.reference(problem, inputs)
    symmetry = tensors.symmetry(problem, 5, SETS, torch.device("cpu"))
    other, due = (tuple(x.new_empty((SETS, *x.shape)) for x in each) for each in (inputs, plain))
    symmetry.inputs(inputs, other)
    symmetry.outputs(plain, due)
    for index in range(SETS):
        found = tensors.reference(problem, tuple(x[index] for x in other))
        assert all(torch.allclose(one, two[index]) for one, two in zip(found, due, strict=True))
    assert not torch.equal(other[0][0], inputs[0])
