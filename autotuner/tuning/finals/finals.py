"""The finals: the best of a search race again, in fresh processes on fresh inputs, against the winner's curse.

The best of many measured variants was picked because it looked fast. Here each of the candidates races against the
baseline once more, in processes that load no other variant, until it is shown to be slower than the leader or has had
its share. Who stays in the running is judged by the gate again, with secret seeds that the search has not seen. Who is
chosen in the end goes through the longest soak. race/confirm.py has the statistics, rounds.py the rounds.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotuner.race.tie import tie_band
from autotuner.run.executor import ask_all
from autotuner.run.jobs import BuildJob, Built
from autotuner.store import FinalsRecord, Lineup, Store, queries
from autotuner.tuning import optuna_marks
from autotuner.tuning.finals import plan, standings
from autotuner.tuning.finals.plan import PROVING, Number, Searched, contenders, searched
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.finals.rounds import Entrant, FinalRounds
from autotuner.tuning.finals.validation import grown, validate
from autotuner.values.errors import AutotunerError, InputError, LeaseLostError
from autotuner.values.ratio import combine

Right = Mapping[Number, Searched]
SHORTER_HEATS = 15
"""What is to serve is tried on shorter lengths, where one grows: as many heats take about as long."""


class Finals:
    """Runs the finals of a study and records them."""

    def __init__(self, trials: Retrials, default: str) -> None:
        """`default`: digest of the space's default variant. Two finalists have two processes, however little time there
        is."""
        self._trials, self._default = trials, default
        self._store, self._study, self._problems = trials.store, trials.study, trials.conditions.problems

    def run(self) -> FinalsRecord:
        """Raises InputError when there is nothing to confirm, OracleError or InfrastructureError when it cannot be."""
        started = time.monotonic()
        with self._trials.leased() as trials:
            found = searched(self._store.outcomes(self._study))
            numbers = contenders(found, self._default)
            if not numbers:
                raise InputError(f"{self._study} has no right variant yet; run `autotuner tune` first")
            shorter_s = self._shorter_s(found[numbers[0]].heat_s)
            trials = replace(trials, seconds=trials.seconds - shorter_s).calibrated()
            until = started + trials.seconds
            baselines, objective = trials.conditions.baselines, trials.conditions.objective
            incumbents = plan.incumbents(queries.races(self._store, self._study, plan.RACES))
            raced = {digest: races for (digest, beside), races in incumbents.items() if beside == baselines}
            shown = {digest: [*map(combine(objective), races)] for digest, races in raced.items()}
            entrants = self._built(self._invited(numbers, found, shown, until), trials)
            if not entrants:
                raise InputError(f"no finalist of {self._study} can be built here; `autotuner gate` says why")
            aa = queries.aa_heats(self._store, self._study)
            here, known = {each.number for each in entrants}, plan.slower_than(found)
            lineup = Lineup(
                finalists=tuple(each.finalist(known[each.number] & here) for each in entrants),
                baselines=baselines,
                raced=tuple(map(tuple, raced.values())),
                tie=tie_band(aa, objective),
                aa_races=len(aa),
                objective=objective,
                considered=numbers,
            )
            finals_id = self._store.start_finals(self._study, lineup, trials.environment)
            FinalRounds(trials, until, finals_id, lineup, entrants).run()
            optuna_marks.mark(self._store, self._study)
        record = standings.finals(self._store, self._study)
        assert record is not None  # it was just recorded
        assert record.standing is not None
        if shorter_s:
            left_s = started + self._trials.seconds - time.monotonic()
            self._try_shorter(max(left_s, shorter_s), [proof.number for proof in record.standing.proofs])
        return record

    def _shorter_s(self, heat_s: float) -> float:
        """Seconds that are kept for shorter lengths; 0 where none grows, or they are too few to come to an end there.
        `heat_s`: of a heat."""
        seconds, needed = self._trials.seconds, SHORTER_HEATS * heat_s
        if not any(problem.growing for problem in self._problems):
            return 0.0
        if needed <= seconds / 2:
            return needed
        self._trials.say(f"no time to try shorter lengths too, some {needed:.0f} s: `autotuner validate` does")
        return 0.0

    def _try_shorter(self, seconds: float, proven: Sequence[Number]) -> None:
        """What serves a problem, on shorter lengths than the tuned ones, so that it serves them too."""
        best = standings.best(self._store, self._study)
        if best is None or best.confirmed is None or (best.confirmed.low or 0) <= 1:
            return
        numbers = tuple(dict.fromkeys((best.record.number, *proven)))
        try:
            validate(replace(self._trials, seconds=seconds), grown(self._problems, numbers))
        except LeaseLostError:
            raise
        except AutotunerError as error:
            self._trials.say(f"shorter lengths were not tried to the end: {error}; `autotuner validate` tries them")

    def _invited(
        self, numbers: Sequence[Number], right: Right, beside: Mapping[str, Sequence[float]], until: float
    ) -> tuple[Number, ...]:
        """As many of those who deserve it as there is time for. `beside`: as `plan.by_merit` has it."""
        ranked = plan.by_merit(numbers, right, beside)
        costs, left_s = [right[number].heat_s for number in ranked], until - time.monotonic()
        found = plan.as_many_as_fit(ranked, costs, left_s - PROVING * self._trials.seconds)
        of = "" if len(found) == len(numbers) else f" of {len(numbers)} that deserve it, as many as there is time for"
        self._trials.say(f"{len(found)} finalists{of}: building them")
        return found

    def _built(self, numbers: Sequence[Number], trials: Retrials) -> list[Entrant]:
        """Those that can be built here; what the search built lies in the cache."""
        outcomes = {number: self._store.outcome(self._study, number) for number in numbers}
        jobs = [(BuildJob(variant=each.variant, conditions=trials.conditions), 0) for each in outcomes.values()]
        entrants: list[Entrant] = []
        for number, result in zip(numbers, ask_all(trials.executor, jobs, trials.beat), strict=True):
            if isinstance(result, Built):
                entrants.append(Entrant(number, outcomes[number], result))
            else:
                self._trials.say(f"trial {number} cannot be built here and is left out")
        return entrants


def due(store: Store, study: str, default: str) -> bool:
    """Whether finals would have others in them than the last ones had, or there were none, or the variant to use has
    not been through the longest soak."""
    numbers = contenders(searched(store.outcomes(study)), default)
    last = standings.finals(store, study)
    if last is None or not set(numbers) <= set(last.considered):
        return bool(numbers)
    best = standings.best(store, study)
    return bool(numbers) and (best is None or best.proof is None)
