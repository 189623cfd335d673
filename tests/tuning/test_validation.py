"""Variants on problems that were not tuned: what is recorded, what ends it, and what becomes of wrong ones."""

import itertools
import math

import pytest
from hypothesis import given, settings, strategies as st

from autotuner.race.confirm import FINAL_BLOCKS
from autotuner.store import Store, ValidationRecord, queries
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.finals.serving import smallest_set
from autotuner.tuning.finals.validation import LEAST, Trying, confirmed_at, validate
from autotuner.values.errors import InputError
from autotuner.values.verdict import Verdict
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.fake_line import Truth
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.simulated_finals import Truths, executor

SPACE = simulated.space()
TUNED = simulated.conditions().problems[0]
OTHERS = tuple(TUNED.sized((1, 2, each, each)) for each in (77, 301))


def takes(us: float, **more: object) -> Truths:
    return lambda _: Truth(us=us, **more)


def study_of(store: Store) -> str:
    return swept(store, executor(takes(50.0)), 2)


def validated(store: Store, study: str, by: InlineExecutor, seconds: float = 60.0) -> ValidationRecord:
    trying = Trying((0,), OTHERS, ("seq_q", "seq_k"))
    said: list[str] = []
    where = (store, study, simulated.conditions(), by, {"os": "none"})
    validate(Retrials(*where, lambda step: said.append(step.text), seconds), [trying])
    assert any("judging trial 0" in each for each in said)
    return queries.validations(store, study)[-1]


def test_it_is_judged_and_timed_in_fresh_processes_on_each_problem(store: Store) -> None:
    found = validated(store, study_of(store), executor(takes(50.0)))
    assert (found.number, found.problems, found.fault) == (0, OTHERS, None)
    assert found.gate.passed
    assert "G6.soak" in [check.code for check in found.gate.checks]
    assert len(found.heats) == LEAST
    assert {len(us) for heat in found.heats for us in heat.baseline_us} == {FINAL_BLOCKS}
    assert all(heat.entrants == (found.digest,) for heat in found.heats)
    for place in range(len(OTHERS)):
        ratio = confirmed_at(found.heats, found.digest, place)
        assert ratio.log_ratio.mid == pytest.approx(math.log(0.5), abs=0.02)
        assert ratio.log_ratio.high < 0


def test_what_the_gate_finds_wrong_there_is_revoked(store: Store) -> None:
    study = study_of(store)
    found = validated(store, study, executor(takes(50.0, fault=Verdict.INCORRECT)))
    assert found.fault is not None
    assert found.heats == ()
    revoked = queries.trial(store, study, 0)
    assert revoked.revoked_reason.startswith("on lengths that were not tuned: G2.T1")


def test_what_computes_less_where_it_is_only_timed_is_revoked(store: Store) -> None:
    """Each heat is audited, as those of finals are."""
    study = study_of(store)
    found = validated(store, study, executor(takes(50.0, honest_us=200.0)))
    assert found.fault.code == "measure.memory"
    assert "measure.memory" in (queries.trial(store, study, 0).revoked_reason or "")


def test_what_cannot_be_built_as_it_was_is_said(store: Store) -> None:
    study = study_of(store)
    with pytest.raises(InputError, match="cannot be built as it was"):
        validated(store, study, executor(takes(50.0, fault=Verdict.BUILD_FAILED)))
    assert queries.validations(store, study) == ()


# The smallest set that serves -----------------------------------------------------------------------------------------


NAMES = "abcd"
TIMES = st.dictionaries(st.sampled_from(NAMES), st.floats(-1.0, -0.001), max_size=4)


@settings(max_examples=200, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=5), st.floats(0, 0.5))
def test_nobody_loses_more_than_is_allowed_and_no_smaller_set_does(
    problems: list[dict[str, float]], loss: float
) -> None:
    found = smallest_set(problems, [1.0] * len(problems), loss)
    for times, choice in zip(problems, found, strict=True):
        took = times[choice.use] if choice.use else 0.0
        best = min([0.0, *times.values()])
        assert took <= best + math.log1p(loss) + 1e-12
        assert math.isclose(choice.loss, took - best, abs_tol=1e-12)
    used = {each.use for each in found} - {None}
    limits = [min([0.0, *times.values()]) + math.log1p(loss) for times in problems]
    for size in range(len(used)):
        for smaller in itertools.combinations(NAMES, size):
            pairs = zip(problems, limits, strict=True)
            assert any(min([0.0, *(t[n] for n in smaller if n in t)]) > limit for t, limit in pairs)
