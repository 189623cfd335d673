"""The baselines as references: what they are asked, and what they are not."""

from __future__ import annotations

import math
from typing import cast

import pytest
import torch

from autotuner.build.family import Family
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.gate.references import answers, names
from autotuner.ops.op import Baseline
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import SdpaTensors, inputs, reference
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import ReferenceCheck
from autotuner.values.outcome import Calibration
from tests.helpers.lines import cpu_line
from tests.helpers.recorded import case_errors


def test_a_baseline_is_not_asked_about_what_lies_past_a_length() -> None:
    """It is NaN in some cases, and torch multiplies it by zero."""
    problem = SdpaProblem(batch=3, heads=2, seq_q=7, seq_k=20, head_dim=64, dtype="float32", key_lengths=True)
    given = inputs(problem, "ragged", 0)
    assert math.isnan(sum(float(each.sum()) for each in given[1:3]))
    (expected,) = reference(problem, *given)
    found = dict(answers(problem, given, names(problem, "cpu")))
    assert found
    for answer in found.values():
        assert answer is not None
        torch.testing.assert_close(answer[0].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_baseline_that_is_wrong_is_no_baseline(toolchain: CpuToolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the fastest. The run goes on with those that are right, and says so."""
    careless = Baseline(lambda problem: lambda q, k, v: (q,), frozenset({"cpu"}))
    monkeypatch.setitem(cast(dict[str, Baseline], SdpaTensors.BASELINES), "careless", careless)
    problem = SdpaProblem(batch=1, heads=2, seq_q=32, seq_k=32, head_dim=16, dtype="float32")
    found = cpu_line(toolchain, Family.find("sdpa"))().calibrate(
        Conditions(problems=(problem,), seeds=(1, 2, 3, 4)), print
    )
    assert {each.backend for each in found.timings} == {"flash", "math"}
    assert "careless" not in found.baselines
    assert list(found.left_out) == ["careless"]
    assert "breaks T1" in found.left_out["careless"]
    assert found.oracle_fault is None


def checked(backend: str, case: str, times: float | None) -> ReferenceCheck:
    return ReferenceCheck(backend=backend, case=case, errors=None if times is None else case_errors(times))


@pytest.mark.parametrize(
    ("other", "sound"),
    [
        ({"Q1": 0.5, "Q2": 0.5}, True),
        ({"Q1": 0.5, "Q2": None}, False),  # nobody is right on Q2
        ({"Q1": 2.5, "Q2": 0.5}, False),  # each of both is wrong somewhere
    ],
)
def test_a_case_without_a_right_baseline_is_broken(other: dict[str, float | None], sound: bool) -> None:
    one = (checked("flash", "Q1", 0.5), checked("flash", "Q2", 2.5))
    checks = one + tuple(checked("math", case, times) for case, times in other.items())
    found = Calibration(baselines=("math",), timings=(), references=checks)
    assert (found.oracle_fault is None) == sound
