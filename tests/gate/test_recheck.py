"""G7: what is looked at after timing, and what it is held against: fresh references and kept ones."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotuner.gate import kept, tolerance
from autotuner.gate.cases import Case, measured
from autotuner.gate.recheck import AUDIT, Timed, judge_fresh, recheck
from autotuner.gate.tolerance import OWN, Truth, compute_truth
from autotuner.ops.sdpa import tensors
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.verdict import Fault, Verdict

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=5, seq_k=9, head_dim=64, dtype="float16")
CASE = Case(name="measured", problem=PROBLEM, distribution="randn")
Forward = Callable[[Tensor, Tensor, Tensor], Tensor]


@pytest.fixture(scope="module")
def truths() -> tuple[Truth, Truth]:
    """What was timed, and the new inputs."""
    return compute_truth(CASE, 1), compute_truth(CASE, 2)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(PROBLEM.scale * q.double() @ k.double().transpose(2, 3), -1)
    return (weights @ v.double()).half()


class Buffers:
    """The buffers after a race, as a variant left them."""

    def __init__(self, truths: tuple[Truth, Truth], forward: Forward = attention) -> None:
        self.expected, self.fresh = truths
        self.inputs = tuple(tensor.clone() for tensor in self.expected.inputs)
        self.output = attention(*self.expected.inputs)
        self.again = 0
        self._forward = forward

    def recheck(self, damage: str | None = None, strays: str | None = None) -> Fault | None:
        left = Timed(self.inputs, (self.output,), damage, strays, self._repeat)
        return recheck(PROBLEM, left, self.expected, self.fresh, OWN)

    def _repeat(self) -> None:
        self.again += 1
        self.output.copy_(self._forward(self.inputs[0], self.inputs[1], self.inputs[2]))

    @property
    def restored(self) -> bool:
        """True when the inputs are those that were timed."""
        return all(torch.equal(now, then) for now, then in zip(self.inputs, self.expected.inputs, strict=True))


def test_a_right_variant_passes_and_its_inputs_come_back(truths: tuple[Truth, Truth]) -> None:
    timed = Buffers(truths)
    assert timed.recheck() is None
    assert timed.again == 1
    assert timed.restored


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_changed_input_is_found_by_its_bits(truths: tuple[Truth, Truth], place: int) -> None:
    timed = Buffers(truths)
    timed.inputs[place].view(torch.int16)[0, 1, 2, 3] ^= 1
    fault = timed.recheck()
    assert (fault.verdict, fault.code) == (Verdict.CORRUPTING, "G7.inputs")
    assert timed.again == 0


def test_a_wrong_output_of_the_timed_run_is_found(truths: tuple[Truth, Truth]) -> None:
    timed = Buffers(truths)
    timed.output[0, 1, 4] += 0.1
    fault = timed.recheck()
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, "G7.output")
    assert "an output of the timed run breaks T1" in fault.detail
    assert timed.again == 0


def test_an_answer_that_was_kept_is_found(truths: tuple[Truth, Truth]) -> None:
    """Kept by the address of the inputs, which is the same."""
    kept = attention(*truths[0].inputs)
    timed = Buffers(truths, lambda *_: kept)
    fault = timed.recheck()
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, "G7.output")
    assert "with new inputs" in fault.detail
    assert timed.restored


def test_an_output_that_is_not_written_again_is_found(truths: tuple[Truth, Truth]) -> None:
    timed = Buffers(truths)
    left = Timed(timed.inputs, (timed.output,), None, None, lambda: None)
    fault = recheck(PROBLEM, left, timed.expected, timed.expected, OWN)
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, "G7.output")
    assert "breaks T0" in fault.detail


@pytest.mark.parametrize(
    ("left", "verdict", "code"),
    [
        ({"damage": "2 bytes past a tensor's end were written"}, Verdict.CORRUPTING, "G7.guard"),
        ({"strays": "two timed launches gave different bits"}, Verdict.NONDETERMINISTIC, "G7.strays"),
    ],
)
def test_what_the_race_left_elsewhere_is_a_fault(
    truths: tuple[Truth, Truth], left: dict[str, str], verdict: Verdict, code: str
) -> None:
    timed = Buffers(truths)
    fault = timed.recheck(**left)
    assert (fault.verdict, fault.code) == (verdict, code)
    assert timed.again == 0


# The audit's outputs --------------------------------------------------------------------------------------------------


AUDITED = SdpaProblem(batch=1, heads=2, seq_q=48, seq_k=48, head_dim=64, dtype="float32")
PLAIN = compute_truth(measured(AUDITED), 3)
FRESH = tensors.fresh(AUDITED, PLAIN.inputs, 5)
RIGHT = tuple(each.float() for each in tensors.reference(AUDITED, FRESH))
KNOWN = [output.leeway for output in PLAIN.outputs]


def _not_asked(*_: object) -> object:
    raise AssertionError("tolerances were worked out anew")


def test_right_outputs_pass_by_the_tolerances_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "truth_of", _not_asked)
    assert judge_fresh(AUDITED, FRESH, RIGHT, OWN, KNOWN) is None


@pytest.mark.parametrize("known", [[], KNOWN])
def test_outputs_of_other_inputs_are_wrong(known: list[tuple[float, ...]]) -> None:
    stale = tuple(each.reference.float() for each in PLAIN.outputs)
    fault = judge_fresh(AUDITED, FRESH, stale, OWN, known)
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, AUDIT)


def test_what_others_do_not_allow_is_judged_by_its_own_tolerances() -> None:
    narrow = [(*(0.0 for _ in each[:-1]), each[-1]) for each in KNOWN]
    assert judge_fresh(AUDITED, FRESH, RIGHT, OWN, narrow) is None


# Large cases, by tolerances of inputs that are alike ------------------------------------------------------------------


def test_a_large_case_is_judged_by_a_share_of_what_is_alike_and_lost_by_its_own_tolerance_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNER_CACHE", str(tmp_path))
    monkeypatch.setattr(tolerance, "SHARED_OUT", 0)
    case = measured(AUDITED.model_copy(update={"heads": 8, "heads_kv": 8}))
    due = tolerance.compute_truth(case, 7, by_others=True)
    own = tolerance.truth_of(case, due.inputs)
    (strict,), (wide,) = due.outputs, own.outputs
    assert tolerance.CLEAR / 2 < strict.slice_rel_tol / wide.slice_rel_tol < 1
    assert strict.peer_max_abs == wide.peer_max_abs
    assert torch.equal(strict.reference, wide.reference)
    plain = wide.reference.float()
    for times, is_right in ((0.1, True), (0.95, True), (1.1, False)):
        output = plain.clone()
        output[0, 7] *= 1 + times * wide.slice_rel_tol  # of one slice, by far within the other rules
        found = tolerance.broken_in(case, (output,), due, OWN)
        assert (found is None) == is_right, times


def test_heads_that_differ_have_no_case_that_is_alike_nor_has_such_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "SHARED_OUT", 0)
    for text in ("(1,8,512,64) float32 lengths", "(1,8,512,64) float32 sinks"):
        assert tolerance.alike(measured(SdpaProblem.parse(text))) is None
    few = tolerance.alike(measured(SdpaProblem.parse("(1,2,512,64) float32")))
    assert few is not None
    assert tolerance.alike(few) is None


# Truths in files ------------------------------------------------------------------------------------------------------


def test_numbers_and_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    strided = torch.randn(3, 4, 5).transpose(0, 2)
    expanded = torch.randn(1, 6, dtype=torch.float64).expand(3, -1)
    part = torch.arange(20, dtype=torch.int32)[3:9:2]
    kept.write(tmp_path / "a", ((strided, expanded), (part, 0.1, math.inf), torch.empty(0)))
    (one, two), (three, *numbers), nothing = kept.read(tmp_path / "a")
    for found, meant in zip((one, two, three, nothing), (strided, expanded, part, torch.empty(0)), strict=True):
        assert (found.dtype, found.stride()) == (meant.dtype, meant.stride())
        assert torch.equal(found, meant)
    assert numbers == [0.1, math.inf]


def test_what_shares_memory_shares_it_still_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    whole = torch.zeros(4, 4)
    kept.write(tmp_path / "a", (whole, whole[1]))
    first, row = kept.read(tmp_path / "a")
    first.fill_(7.0)
    assert row.tolist() == [7.0] * 4
    assert not kept.read(tmp_path / "a")[0].any()


@pytest.mark.parametrize("left", [0, 5, 40, 200])
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, left: int) -> None:
    kept.write(tmp_path / "a", (torch.ones(100), 1.0))
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:left])
    with pytest.raises((ValueError, KeyError, TypeError)):
        kept.read(tmp_path / "a")
