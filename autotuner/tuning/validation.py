"""Variants on problems that were not tuned: judged by the whole gate there, and timed in fresh processes as in finals.

What serves lengths between tuned ones is taken from these (serve/ranges.py). Nothing here is chosen by its figures, so
there is no winner's curse; a variant that the gate finds wrong is revoked, as in finals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from autotuner.race.confirm import PROCESSES, Confirmed, standing_of
from autotuner.race.tie import logs
from autotuner.run.ask import Beat, Heartbeat, ask, sound_calibration
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob
from autotuner.store import Store, TrialRecord, Validation, queries
from autotuner.tuning.final_heats import TRIES, FinalHeats, calm_baselines
from autotuner.tuning.final_rounds import GATE_BLOCKS
from autotuner.tuning.finals import Listener, Step
from autotuner.values import config
from autotuner.values.conditions import TIE, Conditions, fresh_seeds
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.outcome import Heat, Outcome
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault

LEAST = 3
"""Processes of a variant, at least: two bound nothing."""


class Trying(NamedTuple):
    """Trials of a study, by number, and the problems they are tried on; one artifact serves all of these."""

    numbers: tuple[int, ...]
    problems: tuple[Problem, ...]
    vary: tuple[str, ...]
    """The lengths that differ, and are one number in each of them."""


class Validator:
    """Tries variants of a study on problems that were not tuned, and records what it finds."""

    def __init__(
        self,
        store: Store,
        study: str,
        conditions: Conditions,
        executor: Executor,
        environment: Mapping[str, str],
        listen: Listener = lambda _: None,
        seconds: float = 120.0,
        patience_s: float = 60 * config.PATIENCE_MINUTES,
        who: Callable[[], str] = str,
    ) -> None:
        """`conditions`: the study's, whose problems and seeds are not used. `seconds`: after which nothing is timed
        that is not needed. `patience_s`: how long it waits for a calm machine. `who` says who disturbs now."""
        self._store, self._study, self._conditions = store, study, conditions
        self._executor, self._environment, self._listen = executor, environment, listen
        self._seconds, self._patience_s, self._who = seconds, patience_s, who

    def run(self, wanted: Sequence[Trying]) -> None:
        """Raises InputError where a variant cannot be built as it was, OracleError or InfrastructureError where the
        machine does not let it be judged. What was recorded until then stays."""
        until = time.monotonic() + self._seconds
        with self._store.lease(self._study) as lease:
            beat = Heartbeat(lease.beat)
            for trying in wanted:
                conditions = self._calibrated(trying, beat)
                for number in trying.numbers:
                    found = self._tried(number, trying, conditions, until, beat)
                    self._store.record_validation(self._study, found, self._environment)

    def _say(self, text: str) -> None:
        self._listen(Step(text=text))

    def _calibrated(self, trying: Trying, beat: Beat) -> Conditions:
        self._say(f"calibrating on {', '.join(map(str, trying.problems))}")
        update: dict[str, object] = {"problems": trying.problems, "objective": "mean", "seeds": fresh_seeds()}
        fresh = self._conditions.model_copy(update=update)
        found = sound_calibration(ask(self._executor, CalibrationJob(conditions=fresh), beat))
        update = {"baselines": found.baselines, "ceilings": found.ceilings, "baseline_us": calm_baselines(found, {})}
        return fresh.model_copy(update=update)

    def _tried(self, number: int, trying: Trying, conditions: Conditions, until: float, beat: Beat) -> Validation:
        trial = queries.trial(self._store, self._study, number)
        built = self._built(trial, conditions, beat)
        outcome = self._judged(number, built, conditions, beat)
        fault, heats = None if outcome.verdict.has_latency else outcome.fault, list[Heat]()
        if fault is None:
            fault = self._timed(number, built, conditions, until, beat, heats)
        if fault is not None:
            self._refuse(number, fault)
        return Validation(
            number=number,
            digest=built.artifact.digest,
            problems=trying.problems,
            vary=trying.vary,
            baselines=conditions.baselines,
            gate=outcome.gate,
            fault=fault,
            heats=tuple(heats),
        )

    def _built(self, trial: TrialRecord, conditions: Conditions, beat: Beat) -> Built:
        made = ask(self._executor, BuildJob(variant=trial.outcome.variant, conditions=conditions), beat)
        searched = trial.outcome.artifact
        if isinstance(made, Built) and searched is not None and made.artifact.digest == searched.digest:
            return made
        raise InputError(
            f"trial {trial.number} of {self._study} cannot be built as it was: its sources or its compiler have changed"
            " since it passed the gate; tune again"
        )

    def _judged(self, number: int, built: Built, conditions: Conditions, beat: Beat) -> Outcome:
        """The whole gate, with these problems in place of the tuned ones."""
        self._say(f"judging trial {number} on them")
        short = {"min_blocks": GATE_BLOCKS, "max_blocks": GATE_BLOCKS, "seeds": fresh_seeds(), "baseline_us": ()}
        job = JudgeJob(built=built, conditions=conditions.model_copy(update=short), soak="finalist")
        why: object = None
        for _ in range(TRIES):
            outcome = ask(self._executor, job, beat)
            if isinstance(outcome, Outcome) and outcome.verdict.judges:
                return outcome
            why = outcome.fault.detail if isinstance(outcome, Outcome) and outcome.fault is not None else outcome
        raise InfrastructureError(f"trial {number} of {self._study} cannot be judged: {why}")

    def _timed(
        self, number: int, built: Built, conditions: Conditions, until: float, beat: Beat, heats: list[Heat]
    ) -> Fault | None:
        """Processes until it is known of each problem whether the variant is faster there; its fault if it has one."""
        runner = FinalHeats(
            self._executor, conditions, self._say, beat, self._patience_s, self._who, "these lengths are not decided"
        )
        for process in range(PROCESSES):
            if process >= LEAST and (time.monotonic() > until or not _open(heats, built.artifact.digest)):
                break
            self._say(f"timing trial {number}, process {process + 1}")
            runner.draw(fresh_seeds())
            heat, fault = runner.of(built.artifact)
            if heat is not None:
                heats.append(heat)
            if fault is not None:
                return fault
        return None

    def _refuse(self, number: int, fault: Fault) -> None:
        """It serves no length that was not tuned; where it is wrong there, it is revoked."""
        said = f"trial {number}: {fault.code}, {fault.detail}"
        if fault.verdict.judges:
            self._store.revoke(self._study, number, f"on lengths that were not tuned: {fault.code}, {fault.detail}")
            said = f"{said}; revoked"
        self._say(said)


def confirmed_at(heats: Sequence[Heat], digest: str, place: int) -> Confirmed | None:
    """What a variant takes on the problem at that place of heats in which it raced alone: ln(t_variant / t_baseline),
    the process as the unit. None where it failed in one of them, or there are none."""
    values: list[float] = []
    for heat in heats:
        if 0 in heat.faults or not all(heat.us[0]):
            return None
        values.append(median(logs(heat, 0)[place]))
    return standing_of({digest: values}, TIE).finalists[0] if values else None


def _open(heats: Sequence[Heat], digest: str) -> bool:
    """Whether it is not known of some problem if the variant is faster there than the baseline."""
    count = len(heats[0].baselines)
    found = [confirmed_at(heats, digest, place) for place in range(count)]
    return any(each is not None and each.log_ratio.low < 0 < each.log_ratio.high for each in found)
