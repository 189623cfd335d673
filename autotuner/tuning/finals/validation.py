"""Variants on problems that were not tuned: judged by the whole gate there, and timed in fresh processes as in finals.

What serves lengths between tuned ones is taken from these (serve/ranges.py). Nothing here is chosen by its figures, so
there is no winner's curse; a variant that the gate finds wrong is revoked, as in finals.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from autotuner.race.confirm import PROCESSES, Confirmed, biases, standing_of
from autotuner.race.tie import logs
from autotuner.store import Validation, queries
from autotuner.tuning.finals.heats import FinalHeats
from autotuner.tuning.finals.retrials import Retrials, rebuilt
from autotuner.values.conditions import TIE, fresh_seeds
from autotuner.values.outcome import Artifact, Heat
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

    def __init__(self, trials: Retrials) -> None:
        """After `trials.seconds` nothing is timed that is not needed."""
        self._trials = trials

    def run(self, wanted: Sequence[Trying]) -> None:
        """Raises InputError where a variant cannot be built as it was, OracleError or InfrastructureError where the
        machine does not let it be judged. What was recorded until then stays."""
        until = time.monotonic() + self._trials.seconds
        with self._trials.leased() as leased:
            for trying in wanted:
                leased.say(f"calibrating on {', '.join(map(str, trying.problems))}")
                trials = leased.calibrated(problems=trying.problems, objective="mean")
                for number in trying.numbers:
                    found = _tried(number, trying, trials, until)
                    trials.store.record_validation(trials.study, found, trials.environment)


def _tried(number: int, trying: Trying, trials: Retrials, until: float) -> Validation:
    """The whole gate, with these problems in place of the tuned ones, and then processes."""
    built = rebuilt(trials.executor, queries.trial(trials.store, trials.study, number), trials.conditions, trials.beat)
    trials.say(f"judging trial {number} on them")
    outcome = trials.judged(number, built)
    fault, heats = None if outcome.verdict.has_latency else outcome.fault, list[Heat]()
    if fault is None:
        fault = _timed(number, built.artifact, trials, until, heats)
    if fault is not None:  # it serves no length that was not tuned; where it is wrong there, it is revoked
        trials.refuse(number, fault, "on lengths that were not tuned")
    return Validation(
        number=number,
        digest=built.artifact.digest,
        problems=trying.problems,
        vary=trying.vary,
        baselines=trials.conditions.baselines,
        gate=outcome.gate,
        fault=fault,
        heats=tuple(heats),
    )


def _timed(number: int, artifact: Artifact, trials: Retrials, until: float, heats: list[Heat]) -> Fault | None:
    """Processes until it is known of each problem whether the variant is faster there; its fault if it has one."""
    runner = FinalHeats(trials)
    for process in range(PROCESSES):
        if process >= LEAST and (time.monotonic() > until or not _open(heats, artifact.digest)):
            break
        trials.say(f"timing trial {number}, process {process + 1}")
        runner.draw(fresh_seeds())
        heat, fault = runner.of(artifact)
        if heat is not None:
            heats.append(heat)
        if fault is not None:
            return fault
    return None


def confirmed_at(heats: Sequence[Heat], digest: str, place: int) -> Confirmed | None:
    """What a variant takes on the problem at that place of heats in which it raced alone: ln(t_variant / t_baseline),
    the process as the unit. None where it failed in one of them, or there are none."""
    values: list[float] = []
    for heat in heats:
        if 0 in heat.faults or not all(heat.us[0]):
            return None
        values.append(median(logs(heat, 0)[place]))
    return standing_of({digest: values}, TIE, biases(heats, itemgetter(place))).finalists[0] if values else None


def _open(heats: Sequence[Heat], digest: str) -> bool:
    """Whether it is not known of some problem if the variant is faster there than the baseline."""
    count = len(heats[0].baselines)
    found = [confirmed_at(heats, digest, place) for place in range(count)]
    return any(each is not None and each.log_ratio.low < 0 < each.log_ratio.high for each in found)
