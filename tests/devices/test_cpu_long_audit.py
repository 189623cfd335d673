"""The audit of long forwards on the CPU, each of which is one sample, of variants that are functions here."""

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from autotuner.devices.cpu.audit import LongAuditArm, of_variant
from autotuner.devices.cpu.timing import LONG_S, CpuArm, CpuInputSets, CpuVariantArm
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference
from autotuner.ops.tensors import Tensors
from autotuner.values.verdict import Fault, Verdict

PROBLEM = SdpaProblem.parse("(1,2,16,64) float32 full")
WRONG = Fault(verdict=Verdict.INCORRECT, code="G7.audit", detail="wrong")
Compute = Callable[[Tensors, Tensors], None]


@pytest.fixture(autouse=True)
def no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of pytest-timeout runs in this process."""
    monkeypatch.setattr("autotuner.devices.cpu.timing.TIMERS", ())


class Loaded:
    """A variant whose calls run `compute` on inputs and outputs."""

    library = "none.so"

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def workspace_bytes(self, problem: SdpaProblem) -> int:
        return 0

    def prepared(self, problem: SdpaProblem, given: Tensors, written: Tensors, *_: int) -> Callable[[int], None]:
        return lambda stream: self._compute(given, written)


def honest(given: Tensors, written: Tensors) -> None:
    time.sleep(1.2 * LONG_S)
    written[0].copy_(reference(PROBLEM, given)[0])


def early_out() -> Compute:
    """Returns at once where the output holds finite numbers."""
    return lambda given, written: None if bool(written[0].isfinite().all()) else honest(given, written)


def memo() -> Compute:
    """Gives the last answer again for the same inputs."""
    kept: list[Tensors] = []

    def compute(given: Tensors, written: Tensors) -> None:
        if kept and all(bool((now == then).all()) for now, then in zip(given, kept[0], strict=True)):
            written[0].copy_(kept[1][0])
            return
        honest(given, written)
        kept[:] = tuple(each.clone() for each in given), (written[0].clone(),)

    return compute


def judge(given: Tensors, written: Tensors) -> Fault | None:
    right = reference(PROBLEM, given)[0]
    return None if bool((written[0] - right).abs().max() < 1e-4) else WRONG


def audited(compute: Compute, threads: int = 1) -> tuple[Any, LongAuditArm, CpuInputSets]:
    sets = CpuInputSets(PROBLEM, inputs(PROBLEM, "randn", 1), "warm", 0)
    arm = CpuVariantArm(cast(LoadedVariant, Loaded(compute)), sets, threads, lambda timed: None)
    plain, audit = of_variant(arm, judge)
    assert isinstance(audit, LongAuditArm)
    return plain, audit, sets


@pytest.mark.timed
@pytest.mark.parametrize(("cheat", "is_right"), [(early_out, False), (memo, True)])
def test_only_fresh_samples_of_a_variant_that_keeps_answers_take_their_time(
    cheat: Callable[[], Compute], is_right: bool
) -> None:
    plain, audit, _ = audited(cheat())
    for _ in range(2):
        assert audit(fresh=True) > LONG_S
        still = min(audit(fresh=False) for _ in range(3))  # the machine may hold one up
        assert still < LONG_S / 2
        assert min(plain() for _ in range(3)) < LONG_S / 2
    assert (audit.recheck() is None) == is_right  # where the outputs hold wrong numbers
    assert plain.recheck() is None


def test_every_sample_of_an_honest_variant_takes_its_time() -> None:
    plain, audit, _ = audited(honest)
    assert min(audit(fresh=True), audit(fresh=False), plain()) > LONG_S


@pytest.mark.timed
def test_a_plain_forward_follows_another_one_on_its_inputs_whoever_had_them_meanwhile() -> None:
    plain, audit, sets = audited(memo())
    audit(fresh=True)
    baseline = CpuArm(lambda index: time.sleep(1.2 * LONG_S), sets, 1)
    baseline()  # the set has other inputs now
    assert min(plain() for _ in range(3)) < LONG_S / 2


def test_a_wrong_answer_to_fresh_inputs_and_a_changed_input_are_faults() -> None:
    def stale(given: Tensors, written: Tensors) -> None:
        honest(tuple(first) or given, written)
        first.extend(each.clone() for each in given if len(first) < 3)

    first: list[Any] = []
    _, audit, _ = audited(stale)
    audit(fresh=True)
    assert audit.recheck() == WRONG

    def writes_v(given: Tensors, written: Tensors) -> None:
        honest(given, written)
        given[2][0, 0, 0, 0] = 1.5

    plain, audit, _ = audited(writes_v)
    audit(fresh=True)
    audit.recheck()
    found = plain.recheck()
    assert found.code == "G7.inputs"


def test_every_forward_of_an_audit_that_is_timed_has_the_threads_of_the_race() -> None:
    seen: list[int] = []

    def on_torchs_threads(given: Tensors, written: Tensors) -> None:
        seen.append(torch.get_num_threads())
        honest(given, written)

    plain, audit, _ = audited(on_torchs_threads, threads=3)
    seen.clear()
    audit(fresh=True)
    audit(fresh=False)
    plain()
    assert seen == [3, 3, 3]
