"""What the audit's outputs are held against: the reference of their own inputs, with tolerances that are known already
where these are enough."""

import pytest

from autotuner.gate import tolerance
from autotuner.gate.cases import measured
from autotuner.gate.recheck import AUDIT, judge_fresh
from autotuner.gate.tolerance import OWN, compute_truth
from autotuner.ops.sdpa import tensors
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.verdict import Verdict

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=48, seq_k=48, head_dim=64, dtype="float32")
PLAIN = compute_truth(measured(PROBLEM), 3)
FRESH = tensors.fresh(PROBLEM, PLAIN.inputs, 5)
RIGHT = tuple(each.float() for each in tensors.reference(PROBLEM, FRESH))
KNOWN = [output.leeway for output in PLAIN.outputs]


def _not_asked(*_: object) -> object:
    raise AssertionError("tolerances were worked out anew")


def test_right_outputs_pass_by_the_tolerances_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "truth_of", _not_asked)
    assert judge_fresh(PROBLEM, FRESH, RIGHT, OWN, KNOWN) is None


@pytest.mark.parametrize("known", [[], KNOWN])
def test_outputs_of_other_inputs_are_wrong(known: list[tuple[float, ...]]) -> None:
    stale = tuple(each.reference.float() for each in PLAIN.outputs)
    fault = judge_fresh(PROBLEM, FRESH, stale, OWN, known)
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, AUDIT)


def test_what_others_do_not_allow_is_judged_by_its_own_tolerances() -> None:
    narrow = [tuple(0.0 for _ in each) for each in KNOWN]
    assert judge_fresh(PROBLEM, FRESH, RIGHT, OWN, narrow) is None
