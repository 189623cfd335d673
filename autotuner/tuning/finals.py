"""The finals: the best of a search race again, in fresh processes on fresh inputs, against the winner's curse.

The best of many measured variants was picked because it looked fast. Here each of the candidates races against the
baseline once more, in processes that load no other variant, until it is shown to be slower than the leader or has had
its share. Who stays in the running is judged by the gate again, with secret seeds that the search has not seen. Who is
chosen in the end goes through the longest soak. race/confirm.py has the statistics, final_rounds.py the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from autotuner.race.tie import tie_band
from autotuner.run.ask import Beat, Heartbeat, ask, ask_all, sound_calibration
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, CalibrationJob
from autotuner.store import FinalsRecord, Lineup, Store, queries
from autotuner.store.undisturbed import fastest_baselines
from autotuner.tuning import finals_plan, optuna_marks, standings
from autotuner.tuning.final_heats import calm_baselines
from autotuner.tuning.final_rounds import Entrant, FinalRounds, Hall, audits_of, lineup_of
from autotuner.tuning.finals_plan import FINALS_S, PROVING, Number, Searched, contenders, searched
from autotuner.values import config
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.errors import InputError
from autotuner.values.model import Model

Right = Mapping[Number, Searched]


class Step(Model):
    """What the finals do now, for a person."""

    text: str
    left_s: float | None = Field(default=None, description="seconds that the finals will still take, about")
    passing: bool = Field(default=False, description="a detail of the step before: of interest while it lasts")


Listener = Callable[[Step], None]


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
        seconds: float = FINALS_S,
        patience_s: float = 60 * config.PATIENCE_MINUTES,
        beat: Beat = lambda: None,
        who: Callable[[], str] = str,
    ) -> None:
        """`conditions`: the study's, whose seeds are not used. `default`: digest of the space's default variant.
        `seconds`: what the finals may take on a calm machine; two finalists have two processes in any case.
        `patience_s`: how long they wait for one. `beat` is called again and again; what it raises ends them. `who` says
        who disturbs now; "" where nobody can be seen."""
        self._beat, self._who = beat, who
        self._store, self._study, self._conditions = store, study, conditions
        self._executor, self._environment, self._default = executor, environment, default
        self._listen, self._seconds, self._patience_s = listen, seconds, patience_s
        self._rounds: FinalRounds | None = None

    @property
    def waited_s(self) -> float:
        """Seconds that a calm machine was waited for so far."""
        return 0.0 if self._rounds is None else self._rounds.waited_s

    def run(self) -> FinalsRecord:
        """Raises InputError when there is nothing to confirm, OracleError or InfrastructureError when it cannot be."""
        until = time.monotonic() + self._seconds
        with self._store.lease(self._study) as lease:

            def renew() -> None:
                lease.beat()
                self._beat()

            beat = Heartbeat(renew)
            found = searched(self._store.outcomes(self._study))
            numbers = contenders(found, self._default)
            if not numbers:
                raise InputError(f"{self._study} has no right variant yet; run `autotuner tune` first")
            conditions = self._calibrated(beat)
            entrants = self._built(self._invited(numbers, found, until), beat)
            if not entrants:
                raise InputError(f"no finalist of {self._study} can be built here; `autotuner gate` says why")
            lineup = self._lineup(entrants, numbers, found, conditions)
            finals_id = self._store.start_finals(self._study, lineup, self._environment)
            where = (self._store, self._study, self._executor, conditions, self._say, beat)
            hall = Hall(*where, until, self._seconds, self._patience_s, self._who)
            self._rounds = FinalRounds(hall, finals_id, lineup, entrants)
            self._rounds.run()
            optuna_marks.mark(self._store, self._study)
        record = standings.finals(self._store, self._study)
        assert record is not None  # it was just recorded
        return record

    def _say(self, text: str, left_s: float | None = None, passing: bool = False) -> None:
        self._listen(Step(text=text, left_s=left_s, passing=passing))

    def _calibrated(self, beat: Beat) -> Conditions:
        """The study's conditions with the baselines, and what these take on a calm machine: now, or when such a device
        was calibrated before, whichever is less."""
        self._say("timing the baselines")
        fresh = self._conditions.model_copy(update={"seeds": fresh_seeds()})
        found = sound_calibration(ask(self._executor, CalibrationJob(conditions=fresh), beat))
        study = queries.study(self._store, self._study)
        calm_us = calm_baselines(found, fastest_baselines(self._store, study, self._environment))
        update = {"baselines": found.baselines, "ceilings": found.ceilings, "baseline_us": calm_us}
        return self._conditions.model_copy(update=update)

    def _invited(self, numbers: Sequence[Number], right: Right, until: float) -> tuple[Number, ...]:
        """As many of those who deserve it as there is time for."""
        costs = {number: right[number].costs for number in numbers}
        ranked = finals_plan.by_merit(numbers, right)
        found = finals_plan.as_many_as_fit(ranked, costs, until - time.monotonic() - PROVING * self._seconds)
        of = "" if len(found) == len(numbers) else f" of {len(numbers)} that deserve it, as many as there is time for"
        self._say(f"{len(found)} finalists{of}: building them")
        return found

    def _built(self, numbers: Sequence[Number], beat: Beat) -> list[Entrant]:
        """Those that can be built here; what the search built lies in the cache."""
        outcomes = {number: self._store.outcome(self._study, number) for number in numbers}
        jobs = [(BuildJob(variant=each.variant, conditions=self._conditions), 0) for each in outcomes.values()]
        entrants: list[Entrant] = []
        audits = audits_of(queries.all_finals(self._store, self._study))
        for number, result in zip(numbers, ask_all(self._executor, jobs, beat), strict=True):
            if isinstance(result, Built):
                entrants.append(Entrant(number, outcomes[number], result, audits.get(result.artifact.digest)))
            else:
                self._say(f"trial {number} cannot be built here and is left out")
        return entrants

    def _lineup(
        self, entrants: Sequence[Entrant], considered: tuple[Number, ...], right: Right, conditions: Conditions
    ) -> Lineup:
        aa = queries.aa_heats(self._store, self._study)
        return Lineup(
            finalists=lineup_of(entrants, finals_plan.slower_than(right)),
            baselines=conditions.baselines,
            tie=tie_band(aa, conditions.objective),
            aa_races=len(aa),
            objective=conditions.objective,
            considered=considered,
        )


def due(store: Store, study: str, default: str) -> bool:
    """Whether finals would have others in them than the last ones had, or there were none, or the variant to use has
    not been through the longest soak."""
    numbers = contenders(searched(store.outcomes(study)), default)
    last = standings.finals(store, study)
    if last is None or not set(numbers) <= set(last.considered):
        return bool(numbers)
    best = standings.best(store, study)
    return bool(numbers) and (best is None or best.proof is None)
