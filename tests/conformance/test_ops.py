"""What every op must do, ours and one of another package: words that can be typed again, tensors that lie as they are
said to, baselines and emulation that agree with the reference, and an exact symmetry."""

import os
import shutil
import subprocess
import sys
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
REFUSED = {
    "sdpa": {
        "(1,2,64,64) float32 window=0": "from 1 on",
        "(1,2,64,64) float32 window=-3": "from 1 on",
        "(1,2,64,64) float32 window": "found ''",
        "(1,2,64,64) float32 window=7,0": "else some on both sides",
        "(1,2,64,64) float32 causal window=7,2": "under a causal mask",
        "(1,2,64,64) float32 bottom_right": "there is no window",
        **{f"(1,2,64,64) float32 softcap={cap}": "a number above 0" for cap in ("0", "-1", "nan", "inf", "", "x")},
        "(1,2,64,64) bfloat16 paged": "paged is not supported: .*a static cache",
        "(1,2,64,64) bfloat16 varlen": "varlen is not supported: .*say lengths",
        "(1,2,64,64) bfloat16 mla": "mla is not supported: .*the head dimension of Q and K",
        "(1,2,64,64) float32 sinks=float32": "as the other tensors are",
        "(1,2,64,64) float32 sinks=float16": "unknown 'sinks=float16'",
        "(2,4,64x48,64) bfloat16 bias=slopes": "unknown 'bias=slopes'",
        "(2,4,64,64) bfloat16 bias=full bias=alibi": "'bias=alibi' contradicts a word before it",
    },
    "sdpa_fp8": {
        "(1,2,64,128) float32": "float32 is not supported: O is bfloat16 or float16",
        "(1,2,64,128) float8_e5m2 bfloat16": "quantise to float8_e4m3fn",
        "(1,2,64,128) bfloat16 sinks": "sinks is not served from FP8; the op sdpa does in 16 bits",
    },
    "rmsnorm": {
        "(1,2,3) float32": r"expected \(tokens,hidden_size\) dtype",
        "(1,2)": "the dtype is missing",
        "(1,2) float23": "did you mean float32",
        "(1,2) float32 eps=small": "expected a number such as 1e-05",
        "(1,2) float32 bias": "bias is not supported: there is a weight and no bias",
        "(0,2) float32": "greater than 0",
        "(1,2) float32 eps=0": "greater than 0",
    },
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


@pytest.mark.slow
def test_the_example_of_a_package_installs_and_is_found_by_its_entry_point(tmp_path: Path) -> None:
    source, site = tmp_path / "rowsum", tmp_path / "site"
    shutil.copytree(PLUGINS / "rowsum", source)
    options = ["-q", "--no-deps", "--no-build-isolation", "--target", str(site), str(source)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options], check=True)
    code = "from autotuner.ops import OPS; assert OPS['rowsum'].name == 'rowsum'"
    environment = {**os.environ, "PYTHONPATH": str(site), "AUTOTUNER_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)


@each_problem
def test_what_is_printed_can_be_typed(op: Op, problem: Problem) -> None:
    assert op.problem.parse(str(problem)) == problem
    assert op.problem.model_validate(problem.model_dump()) == problem


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in REFUSED for text in REFUSED[name]])
def test_what_is_not_served_is_refused_by_name(op: Op, name: str, text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[name][text]):
        op.problem.parse(text)


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
