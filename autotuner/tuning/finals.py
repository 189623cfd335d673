"""The finals: the best of a search race again, in fresh processes on fresh inputs, against the winner's curse.

The best of many measured variants was picked because it looked fast. Here the candidates are judged once more by the
gate, with secret seeds that the search has not seen and a longer soak, and race in processes that have judged nothing
before. measure/confirm.py turns the heats into confirmed ratios and a tie set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from autotuner.measure.confirm import FINAL_BLOCKS, PROCESSES, confirm
from autotuner.measure.tie import tie_band
from autotuner.run.ask import Beat, Heartbeat, ask, ask_all, sound_calibration
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob, RaceJob
from autotuner.store import Finalist, FinalsRecord, Lineup, Store, queries
from autotuner.tuning import standings
from autotuner.tuning.workbench import fresh_seeds
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Heat, Measurement, Outcome
from autotuner.values.verdict import Fault, Verdict

TOP = 8
"""Best trials by the search's estimate that are always finalists."""
MOST = 32
"""Trials whose interval overlaps that of the best, at most, that are finalists beside these."""
TRIES = 3
"""Tries of a heat or a judgement, where a disturbed machine spoils them."""

Number = int
"""Of a trial."""


class Step(Model):
    """What the finals do now, for a person."""

    text: str


Listener = Callable[[Step], None]


def contenders(outcomes: Mapping[Number, Outcome], default: str) -> tuple[Number, ...]:
    """The trials that deserve the finals, by the search's estimate: the best eight, all whose interval overlaps that
    of the best, and the space's default configuration (`default` is its variant's digest); the best first.

    What was raced out is no rival of the best, but may be among the eight. Of equal programs there is only one.
    """
    right = {
        number: outcome
        for number, outcome in outcomes.items()
        if outcome.measurement is not None and outcome.verdict in (Verdict.MEASURED, Verdict.RACED_OUT)
    }
    ranked = sorted(right, key=lambda number: (right[number].objective, number))
    if not ranked:
        return ()
    best = next((number for number in ranked if right[number].verdict == Verdict.MEASURED), ranked[0])
    limit = _ends(right[best])[1]
    overlapping = [n for n in ranked if right[n].verdict == Verdict.MEASURED and _ends(right[n])[0] <= limit]
    chosen = set(ranked[:TOP]) | set(overlapping[:MOST])
    chosen |= {number for number, outcome in right.items() if outcome.variant.digest == default}
    return tuple(number for number in ranked if number in chosen)


def _ends(outcome: Outcome) -> tuple[float, float]:
    """Low and high of the objective, whichever of its two kinds it is."""
    assert outcome.measurement is not None
    intervals = [timing.log_ratio for timing in outcome.measurement.timings]
    worst = max(intervals, key=lambda each: each.median)
    if worst.median == outcome.objective:  # the largest, or there is one problem only
        return worst.low, worst.high
    return fmean(each.low for each in intervals), fmean(each.high for each in intervals)


class _Entrant(NamedTuple):
    """A finalist that was built here."""

    number: Number
    searched: Outcome
    built: Built


class Finals:
    """Runs the finals of a study and records them."""

    def __init__(
        self,
        store: Store,
        study: str,
        conditions: Conditions,
        executor: Executor,
        environment: Mapping[str, str],
        default: str,
        listen: Listener = lambda _: None,
    ) -> None:
        """`conditions`: the study's, whose seeds are not used. `default`: digest of the space's default variant."""
        self._store, self._study, self._conditions = store, study, conditions
        self._executor, self._environment, self._default = executor, environment, default
        self._listen = listen
        self._considered: tuple[Number, ...] = ()

    def run(self) -> FinalsRecord:
        """Raises InputError when there is nothing to confirm, OracleError or InfrastructureError when it cannot be."""
        with self._store.lease() as lease:
            beat = Heartbeat(lease.beat)
            outcomes = self._store.judged_numbers(self._study)
            numbers = contenders(outcomes, self._default)
            if not numbers:
                raise InputError(f"{self._study} has no right variant yet; run `autotuner tune` first")
            self._conditions = self._calibrated(beat)
            self._considered = numbers
            entrants = self._built({number: outcomes[number] for number in numbers}, beat)
            entrants = self._passed(entrants, beat)
            if not entrants:
                raise InputError(f"no finalist of {self._study} passed the gate here; `autotuner status` says why")
            self._race(entrants, beat)
        found = standings.finals(self._store, self._study)
        assert found is not None  # it was just recorded
        return found

    def _say(self, text: str) -> None:
        self._listen(Step(text=text))

    def _fresh(self) -> Conditions:
        return self._conditions.model_copy(update={"seeds": fresh_seeds()})

    def _calibrated(self, beat: Beat) -> Conditions:
        found = sound_calibration(ask(self._executor, CalibrationJob(conditions=self._fresh()), beat))
        # no thermometer: what disturbs one process widens the interval, and no two are judged alone
        return self._conditions.model_copy(update={"baselines": found.baselines, "ceilings": found.ceilings})

    # Who races --------------------------------------------------------------------------------------------------

    def _built(self, finalists: Mapping[Number, Outcome], beat: Beat) -> list[_Entrant]:
        """Those that can be built here; what the search built lies in the cache."""
        self._say(f"{len(finalists)} finalists: building them")
        jobs = [(BuildJob(variant=outcome.variant, conditions=self._conditions), 0) for outcome in finalists.values()]
        entrants: list[_Entrant] = []
        for (number, outcome), result in zip(finalists.items(), ask_all(self._executor, jobs, beat), strict=True):
            if isinstance(result, Built):
                entrants.append(_Entrant(number, outcome, result))
            else:
                self._say(f"trial {number} cannot be built here and is left out")
        return entrants

    def _passed(self, entrants: Sequence[_Entrant], beat: Beat) -> list[_Entrant]:
        """Those that pass the gate on fresh seeds, with a longer soak. What fails is revoked."""
        self._say("judging them on fresh inputs")
        conditions = self._fresh()
        passed: list[_Entrant] = []
        for entrant in entrants:
            outcome = self._judged(entrant, conditions, beat)
            if outcome.verdict.has_latency:
                passed.append(entrant)
            else:
                assert outcome.fault is not None  # whatever has no latency has one
                self._fails(entrant, outcome.fault)
        return passed

    def _judged(self, entrant: _Entrant, conditions: Conditions, beat: Beat) -> Outcome:
        for tried in range(TRIES):
            outcome = ask(self._executor, JudgeJob(built=entrant.built, conditions=conditions, soak="finalist"), beat)
            if not isinstance(outcome, Outcome):
                raise InfrastructureError(f"a finalist's job gave no outcome: {outcome}")
            if outcome.verdict.judges or tried == TRIES - 1:
                return outcome
        raise AssertionError("there is a last try")

    def _fails(self, entrant: _Entrant, fault: Fault) -> None:
        """A finalist is out. If it is the very binary of the search, and the fault is its own, its trial is revoked."""
        said = f"trial {entrant.number}: {fault.code}, {fault.detail}"
        assert entrant.searched.artifact is not None  # it was measured
        same = entrant.built.artifact.digest == entrant.searched.artifact.digest
        if same and fault.verdict.judges:
            self._store.revoke(self._study, entrant.number, f"in the finals: {fault.code}, {fault.detail}")
            self._say(f"{said}; revoked")
        else:
            self._say(f"{said}; left out")

    # The heats --------------------------------------------------------------------------------------------------

    def _race(self, entrants: Sequence[_Entrant], beat: Beat) -> None:
        aa = queries.aa_heats(self._store, self._study)
        lineup = Lineup(
            finalists=tuple(_finalist(entrant) for entrant in entrants),
            baselines=self._conditions.baselines,
            tie=tie_band(aa, self._conditions.objective),
            aa_races=len(aa),
            objective=self._conditions.objective,
            considered=self._considered,
        )
        number = self._store.start_finals(self._study, lineup, self._environment)
        artifacts = tuple(entrant.built.artifact for entrant in entrants)
        heats: list[Heat] = []
        for process in range(PROCESSES):
            self._say(
                f"process {process + 1} of {PROCESSES}: "
                f"{len(artifacts)} finalists and the baseline, {FINAL_BLOCKS} blocks"
            )
            heats.append(self._heat(artifacts, beat))
            self._store.record_heat(self._study, "finals", heats[-1], finals_id=number)
        faults = {place: fault for heat in heats for place, fault in heat.faults.items()}
        for place, fault in faults.items():
            self._fails(entrants[place], fault)
        self._store.finish_finals(number, confirm(heats, lineup.tie, lineup.objective))

    def _heat(self, artifacts: tuple[Artifact, ...], beat: Beat) -> Heat:
        """One heat, in a process of its own."""
        result: object = None
        for _ in range(TRIES):
            job = RaceJob(artifacts=artifacts, conditions=self._fresh(), blocks=FINAL_BLOCKS, fresh=True)
            result = ask(self._executor, job, beat)
            if isinstance(result, Heat):
                return result
        why = result.detail if isinstance(result, Fault) else result
        raise InfrastructureError(f"the finals cannot be raced: {why}")


def _finalist(entrant: _Entrant) -> Finalist:
    measured, searched = entrant.searched.measurement, entrant.searched.artifact
    assert isinstance(measured, Measurement)  # contenders have both
    assert searched is not None
    return Finalist(
        number=entrant.number,
        variant=entrant.searched.variant,
        digest=entrant.built.artifact.digest,
        searched=searched.digest,
        estimate=measured.objective,
    )


def due(store: Store, study: str, default: str) -> bool:
    """Whether finals would have others in them than the last ones had, or there were none."""
    numbers = contenders(store.judged_numbers(study), default)
    last = standings.finals(store, study)
    return bool(numbers) and (last is None or not set(numbers) <= set(last.considered))
