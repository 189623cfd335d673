"""The baselines as references: what they are asked, and what they are not."""

import math
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.references import answers, names, sound, without_nan
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops import OPS, ahead
from autotuner.ops.op import Baseline
from autotuner.ops.sdpa import masks, tensors
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference
from autotuner.run.local import Deadlines
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError
from autotuner.values.gate_report import ReferenceCheck
from autotuner.values.outcome import Calibration
from tests.helpers.judging import cpu_line
from tests.helpers.recorded import case_errors


@pytest.mark.parametrize(("op", "dtype", "off"), [("sdpa", "float32", 1e-5), ("sdpa_fp8", "bfloat16", 0.02)])
def test_a_baseline_is_not_asked_about_what_lies_past_a_length(op: str, dtype: str, off: float) -> None:
    """It is NaN in some cases, and torch multiplies it by zero."""
    problem = OPS[op].problem.parse(f"(3,2,7x20,64) {dtype} lengths")
    given = OPS[op].tensors().inputs(problem, "ragged", 0)
    assert math.isnan(sum(float(each.float().sum()) for each in given[1:3]))
    (expected,) = OPS[op].tensors().reference(problem, given)
    found = dict(answers(problem, without_nan(given), names(problem, "cpu")))
    assert found
    for answer in found.values():
        assert answer is not None
        torch.testing.assert_close(answer[0].double(), expected, atol=off, rtol=off)


def test_what_rounds_in_no_order_of_the_sums_may_round_where_q_is_scaled_before() -> None:
    """Of inputs in which two keys score alike and all sums are exact: with a scale that is no power of 2 they are not,
    and the two share their weight a little differently."""
    problem = SdpaProblem.parse("(2,4:2,130x203,64) float32 causal bottom_right lengths")
    truth = compute_truth(Case(name="outliers", problem=problem, distribution="outlier_row"), 6)
    q, k, v, lengths = truth.inputs
    assert lengths is not None
    scaled, keys = q * (64**-0.5 * math.log2(math.e)), k.nan_to_num(0).repeat_interleave(2, 1).mT
    scores = torch.zeros(2, 4, 130, 203)
    for place in range(64):
        scores += scaled[..., place : place + 1] * keys[..., place : place + 1, :]
    seen = masks.visible(problem, lengths, q.device)
    assert seen is not None
    scores = scores.masked_fill(~seen, -math.inf)
    weights = torch.softmax(scores.double() * math.log(2), -1).nan_to_num(0)
    found = (weights @ v.nan_to_num(0).repeat_interleave(2, 1).double()).float()
    assert judge(found, truth.outputs[0]).failed_rule is None


def test_an_output_must_be_no_number_where_the_reference_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op may have such inputs among its cases: there NaN is right, and a number is wrong."""

    def drawn(problem: SdpaProblem, distribution: str, seed: int) -> tuple[torch.Tensor, ...]:
        q, k, v = inputs(problem, distribution, seed)
        q[0, 0, 3] = math.nan
        v[0, 1, :, 5] = math.inf
        return q, k, v

    problem = SdpaProblem(batch=1, heads=2, seq_q=7, seq_k=20, head_dim=64, dtype="float32")
    monkeypatch.setattr(tensors, "inputs", drawn)
    truth = compute_truth(Matrix(problem).case((1, 2, 7, 20)), 1)
    (expected,) = truth.outputs
    assert expected.row_rel_tol < 1e-3
    q, k, v = truth.inputs
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert judge(right, expected).failed_rule is None
    for place, value in (((0, 0, 3, 0), 1.0), ((0, 1, 2, 5), 1.0), ((0, 1, 2, 5), math.nan), ((0, 1, 2, 6), math.nan)):
        wrong = right.clone()
        wrong[place] = value
        assert judge(wrong, expected).failed_rule == "T0", place


@pytest.mark.slow
def test_a_baseline_that_is_wrong_only_where_libraries_are_is_raced(
    toolchain: CpuToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scaled_too_late(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
        scores = (
            (q @ k.mT).half().float() / q.shape[-1] ** 0.5 if q.abs().max() > 1e3 else q @ k.mT / q.shape[-1] ** 0.5
        )
        return (scores.softmax(-1) @ v,)

    monkeypatch.setitem(tensors.BASELINES, "late", Baseline(lambda problem: scaled_too_late, frozenset({"cpu"})))
    problem = SdpaProblem(batch=1, heads=2, seq_q=32, seq_k=32, head_dim=16, dtype="float32")
    conditions = Conditions(problems=(problem,), seeds=(1, 2, 3, 4))
    found = cpu_line(toolchain, Family.find("sdpa"))().calibrate(conditions, print)
    assert "late" in {each.backend for each in found.timings}
    assert found.left_out == {}


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1)
@pytest.mark.parametrize("needs_s", [30.0, 1.0])
def test_a_baseline_that_is_not_compiled_in_its_share_of_a_run_is_left_out_of_it(
    toolchain: CpuToolchain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needs_s: float
) -> None:
    endless = tmp_path / "g++"
    endless.write_text('#!/bin/sh\ncase "$*" in *inductor*) sleep 600;; esac\nexec g++ "$@"\n')
    endless.chmod(0o755)
    line = cpu_line(toolchain, Family.find("rmsnorm"))()
    monkeypatch.setenv("AUTOTUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(endless))
    monkeypatch.setitem(ahead.MAKING_S, "cpu", needs_s)
    problem, began = OPS["rmsnorm"].problem.parse("(8,96) float32"), time.monotonic()
    found = line.calibrate(Conditions(problems=(problem,), seeds=(1, 2, 3, 4), seconds=30.0), print)
    assert time.monotonic() - began < 100, "it waits longer than a third of the time"
    assert found.left_out == {"compiled": f"compiled does not take {problem}: {ahead.LATE}"}
    assert found.doubts[0].startswith(f"compiled may be faster than the baseline {found.baselines[0]}: ")
    assert {each.backend for each in found.timings} == {*names(problem, "cpu")} - {"compiled"}


def test_what_a_run_waits_for_has_a_third_of_its_time() -> None:
    def waits_s(seconds: float | None) -> float:
        with ahead.limited("cpu", seconds):
            return ahead.latest - time.monotonic()

    assert [round(waits_s(seconds)) for seconds in (48.0, 120.0, 6000.0)] == [0, 40, 200]
    assert waits_s(None) < Deadlines().calibrate, "all would end as what hangs does"


def test_a_baseline_for_which_there_is_no_memory_is_not_one_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next best would be pinned, and a variant held against fewer baselines."""

    def no_room(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nand more")

    full = Baseline(lambda problem: no_room, frozenset({"cpu"}))
    known = tensors.BASELINES
    monkeypatch.setitem(known, tensors.PEER, full)
    problem = SdpaProblem(batch=1, heads=2, seq_q=4, seq_k=4, head_dim=16, dtype="float32")
    said = r"^the memory of the device is full: CUDA out of memory\. Tried to allocate 2\.00 GiB\.$"
    with pytest.raises(InfrastructureError, match=said):
        dict(answers(problem, inputs(problem, "randn", 0), names(problem, "cpu")))
    with pytest.raises(InfrastructureError, match=said):
        compute_truth(Matrix(problem).case((1, 2, 4, 4), "randn"), 1)


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


def test_a_row_that_sees_no_key_is_not_what_a_baseline_is_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN gives NaN there, other backends 0; torch does not say what is right."""
    problem = SdpaProblem(
        batch=2, heads=2, seq_q=9, seq_k=5, head_dim=16, dtype="float32", causal=True, corner="bottom_right", lse=True
    )

    def nan_where_blind(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = [each.float() for each in reference(problem, given)]
        for each in found:
            each[:, :, :4] = math.nan  # 9 rows, 5 keys: the last row sees all, the first four none
        return tuple(found)

    mine = tensors.BASELINES["flash"]._replace(forward=lambda _: nan_where_blind, beside=lambda *_: ())
    monkeypatch.setitem(tensors.BASELINES, "flash", mine)
    given = inputs(problem, "randn", 0)
    ((_, answer),) = answers(problem, given, ["flash"])
    assert answer is not None
    for found, expected in zip(answer, reference(problem, given), strict=True):
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


def test_a_baseline_that_takes_no_case_does_not_stand_for_those_that_break_their_tolerance() -> None:
    of = {"none": None, "wrong": case_errors(2.0), "right": case_errors(0.5)}
    none, wrong, right = (ReferenceCheck(backend=name, case="c", errors=errors) for name, errors in of.items())
    assert sound([none, wrong]) == ("none", "wrong")
    assert sound([none, wrong, right]) == ("none", "right")
