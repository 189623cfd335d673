"""The finals: the best of a search race again, in fresh processes on fresh inputs, against the winner's curse.

The best of many measured variants was picked because it looked fast. Here each of the candidates races against the
baseline once more, in processes that load no other variant, until it is shown to be slower than the leader or has had
its share. Who stays in the running is judged by the gate again, with secret seeds that the search has not seen. Who is
chosen in the end goes through the longest soak. Whoever fails is out, and what it beat is in the running again.
race/confirm.py has the statistics.
"""

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotuner.race.audit import APART
from autotuner.race.confirm import FIRST, PROCESSES, Bias, Standing, biases, confirm, process_values
from autotuner.race.tie import tie_band
from autotuner.run.executor import ask_all
from autotuner.run.jobs import BuildJob, Built
from autotuner.store import Finalist, FinalsRecord, FinalsResult, Lineup, Proof, Store, queries
from autotuner.tuning import optuna_marks
from autotuner.tuning.finals import plan, standings
from autotuner.tuning.finals.plan import FRESH, PROVING, Number, Searched, contenders, searched
from autotuner.tuning.finals.retrials import FinalHeats, Retrials
from autotuner.tuning.finals.serving import confirmed_on_each, servers
from autotuner.tuning.finals.standings import choice
from autotuner.tuning.finals.validation import grown, validate
from autotuner.values import codes
from autotuner.values.conditions import fresh_seeds
from autotuner.values.errors import AutotunerError, InputError, LeaseLostError, OutOfTimeError
from autotuner.values.gate_report import CheckResult
from autotuner.values.outcome import Heat, Measurement, Outcome
from autotuner.values.ratio import combine, speedup_of
from autotuner.values.verdict import Fault, Verdict

ENOUGH = 4
"""Processes after which another one gains less than the gate on those who may lead."""
UNLIKE = "measure.unlike"
PROVEN = (codes.MANY, codes.MEMORY)
"""The checks of those that are chosen, beside those of every finalist."""


class Entrant:
    """A finalist that was built here, and what became of it so far."""

    def __init__(self, number: Number, searched: Outcome, built: Built) -> None:
        self.number, self.searched, self.built = number, searched, built
        self.digest = built.artifact.digest
        self.heat_s = plan.heat_s(searched)
        """Seconds of its last heat; before the first, as expected."""
        self.audit: CheckResult | None = None
        """That it passed after its first heat."""
        self.heats = 0
        self.is_judged, self.is_out = False, False

    @property
    def is_as_searched(self) -> bool:
        """Whether it is the very binary that the search has judged."""
        artifact = self.searched.artifact
        return artifact is not None and artifact.digest == self.digest

    def finalist(self, slower_than: frozenset[Number]) -> Finalist:
        """As the store keeps it."""
        measured, searched = self.searched.measurement, self.searched.artifact
        assert isinstance(measured, Measurement)  # contenders have both
        assert searched is not None
        return Finalist(
            number=self.number,
            variant=self.searched.variant,
            digest=self.digest,
            searched=searched.digest,
            estimate=measured.objective,
            slower_than=tuple(sorted(slower_than)),
        )


class FinalRounds:
    """One finals, from the first heat to the end."""

    def __init__(
        self, trials: Retrials, until: float, finals_id: int, lineup: Lineup, entrants: Sequence[Entrant]
    ) -> None:
        """`until`: when they should be over, on the monotonic clock."""
        self._trials, self._until, self._id, self._lineup = trials, until, finals_id, lineup
        self._entrants = {entrant.digest: entrant for entrant in entrants}
        self._heats: list[Heat] = []
        self._runner = FinalHeats(trials)
        self._is_over = False
        """Whether no process follows, as far as is known."""
        self._proofs: dict[str, Proof] = {}
        """By artifact."""
        self._proof_s = 0.0
        """Seconds that the last one took."""

    def run(self) -> None:
        """Records heats as they are run, and the end. Raises InputError when no finalist is left, OutOfTimeError when
        the time is over before the one to use has had its first processes, and InfrastructureError when the machine
        does not let the finals come to an end."""
        try:
            self._to_the_end()
        except OutOfTimeError:
            self._is_over = True
            if not self._counts():
                raise
        standing, chosen = self._standing(), self._chosen()
        if chosen is not None and chosen.digest not in self._proofs:
            standing = standing.model_copy(update={"crowned": False})
        alive = {entrant.digest: entrant for entrant in self._alive()}
        proofs = tuple(proof for digest, proof in self._proofs.items() if digest in alive)
        audits = {digest: entrant.audit for digest, entrant in alive.items() if entrant.audit is not None}
        self._trials.store.finish_finals(self._id, FinalsResult(**dict(standing), proofs=proofs, audits=audits))

    def _counts(self) -> bool:
        """Whether what was shown until the time was over counts: the one to use is proven, or has its interval, and no
        finals before these have proven one. Without a proof nobody is crowned."""
        chosen = self._chosen()
        if chosen is None or chosen.digest in self._proofs:
            return chosen is not None
        if chosen.heats < FIRST or standings.finals(self._trials.store, self._trials.study) is not None:
            return False
        said = f"the time is over before trial {chosen.number} went through the longest soak: nobody is crowned"
        self._trials.say(f"{said}; `autotuner finals` goes to the end")
        return True

    def _to_the_end(self) -> None:
        """Races, and proves those who are to be used. First comes a process of the baseline alone: none of a finalist
        takes less time."""
        self._trials.say("timing the baseline alone")
        started = time.monotonic()
        self._runner.draw(fresh_seeds())
        self._record(self._runner.witness())
        for entrant in self._entrants.values():
            entrant.heat_s = max(entrant.heat_s, time.monotonic() - started)
        while True:
            try:
                self._race()
            except OutOfTimeError:
                self._is_over = True
                if (chosen := self._chosen()) is None or chosen.heats < FIRST:
                    raise
                self._trials.say(f"the time is over; the proof of trial {chosen.number} is the last thing")
            chosen = self._chosen()
            if chosen is None:
                raise InputError(f"no finalist of {self._trials.study} passed here; `autotuner status` says why")
            unproven = self._unproven(chosen)
            if unproven is None:
                return
            self._prove(unproven, chosen)

    # Rounds -----------------------------------------------------------------------------------------------------

    def _race(self) -> None:
        """Rounds until nobody in the running has a process left, or there is no time for another; then the gate on
        those who may still lead. Where one fails there, what it beat races on."""
        was_over, self._is_over = self._is_over, False
        while True:
            wanted, waiting = self._wanted(), self._unjudged()
            if running := self._in_time(wanted):
                self._round(running)
            elif waiting and self._left_s() >= FRESH * waiting[0].heat_s + self._proving_s:
                self._judge(waiting[0])
            else:
                if wanted and not was_over:
                    self._trials.say("no time for another process")
                self._is_over = True
                return

    def _alive(self) -> list[Entrant]:
        return [entrant for entrant in self._entrants.values() if not entrant.is_out]

    def _wanted(self) -> list[Entrant]:
        """Those whose turn it is: with fewer than the first processes, else who may still lead; the fastest first."""
        tied = self._tied()
        new = [entrant for entrant in (tied + self._alive()) if entrant.heats < FIRST]
        return list(dict.fromkeys(new)) or [entrant for entrant in tied if entrant.heats < PROCESSES]

    def _in_time(self, wanted: Sequence[Entrant]) -> list[Entrant]:
        """As many of them as there is time for, and the first processes of the fastest in any case. Without the proof
        of that one the others' say nothing."""
        counts = range(len(wanted), 0, -1)
        found = next((count for count in counts if not self._is_late(wanted[:count])), 0)
        is_due = bool(wanted) and wanted[0] is self._front() and wanted[0].heats < FIRST
        return list(wanted[: found or int(is_due)])

    def _front(self) -> Entrant:
        """The fastest, by the search as long as nobody has raced."""
        return (self._tied() or self._alive())[0]

    def _tied(self) -> list[Entrant]:
        """Who is not shown to be slower than the leader; the fastest first."""
        finalists = sorted(self._standing().finalists, key=lambda each: each.log_ratio.mid)
        return [self._entrants[each.digest] for each in finalists if each.tied]

    def _standing(self) -> Standing:
        here = {entrant.digest for entrant in self._alive()}
        heats = [heat for heat in self._heats if here.issuperset(heat.entrants)]
        lineup = self._lineup
        found = confirm(heats, lineup.tie, lineup.objective, self._is_over, lineup.raced)
        all_raced = all(entrant.heats for entrant in self._alive())
        return found.model_copy(update={"crowned": found.crowned and all_raced})

    def _is_late(self, running: Sequence[Entrant]) -> bool:
        """Whether another process of each of these would leave too little for the other first ones of the fastest and
        the gate. Until all have had ENOUGH time is kept for the proof alone: who will lead is not known yet, and each
        heat has its own quick cases of the gate."""
        fewest, first = min(entrant.heats for entrant in running), self._front()
        gates_s = 0.0 if fewest < ENOUGH else math.fsum(FRESH * entrant.heat_s for entrant in self._unjudged())
        due_s = max(0, FIRST - first.heats - (first in running)) * first.heat_s
        return self._left_s() < math.fsum(entrant.heat_s for entrant in running) + due_s + gates_s + self._proving_s

    @property
    def _proving_s(self) -> float:
        """Kept for the gate on the one that is chosen."""
        longest = max((entrant.heat_s for entrant in self._alive()), default=0.0)
        return max(PROVING * self._trials.seconds, FRESH * longest)

    def _left_s(self) -> float:
        return min(self._until, self._trials.until) - time.monotonic()

    def _round(self, running: Sequence[Entrant]) -> None:
        """One more process of each, in random order. All have the same inputs."""
        number = min(entrant.heats for entrant in running) + 1
        count = f"{len(running)} finalists" if len(running) > 1 else f"trial {running[0].number}"
        said = f"process {number} of {PROCESSES}: {count}, each alone beside the baseline"
        self._trials.say(said, max(0.0, self._left_s()))
        if len(self._heats) > 1:  # else they are those of the baseline alone
            self._runner.draw(fresh_seeds())
        for entrant in random.sample(running, len(running)):
            self._heat(entrant)

    def _heat(self, entrant: Entrant) -> None:
        self._trials.say(f"timing trial {entrant.number}, process {entrant.heats + 1}", passing=True)
        started = time.monotonic()
        heat, fault = self._runner.of(entrant.built.artifact)
        entrant.heat_s = time.monotonic() - started
        entrant.heats += 1
        if heat is not None:
            self._record(heat)
            entrant.audit = entrant.audit or heat.audit
        fault = fault or self._unlike(entrant)
        if fault is not None:
            self._fails(entrant, fault)

    def _unlike(self, entrant: Entrant) -> Fault | None:
        """A fault of one that is far faster in each of its processes than the search has shown of the same binary
        against the same baselines. Where samples were held up, without what it waited."""
        measured = entrant.searched.measurement
        if measured is None or entrant.heats < FIRST or not entrant.is_as_searched:
            return None
        least, own = measured.log_ratio.low, [heat for heat in self._heats if heat.entrants == (entrant.digest,)]
        if tuple(timing.baseline for timing in measured.timings) != self._lineup.baselines or not own:
            return None
        over = combine(self._lineup.objective)
        found = process_values(own, over).get(entrant.digest, [math.inf])
        slowest = max(found) + biases(own, over).get(entrant.digest, Bias()).more
        if slowest >= least - math.log1p(APART):
            return None
        now, then = speedup_of(slowest), speedup_of(least)
        detail = f"{now:.3g} times as fast as the baseline in each process, and at most {then:.3g} times in the search"
        return Fault(verdict=Verdict.IMPOSSIBLE, code=UNLIKE, detail=f"{detail}: it knows where it is timed")

    def _record(self, heat: Heat) -> None:
        self._heats.append(heat)
        self._trials.store.record_heat(self._trials.study, "finals", heat, finals_id=self._id)

    # The gate ---------------------------------------------------------------------------------------------------

    def _unjudged(self) -> list[Entrant]:
        """Those who may still lead and have not been judged here, but for the one to use, whose proof begins with the
        whole gate; the fastest first."""
        chosen = self._chosen()
        return [entrant for entrant in self._tied() if not entrant.is_judged and entrant is not chosen]

    def _judge(self, entrant: Entrant) -> None:
        """The gate on fresh seeds, with a longer soak."""
        entrant.is_judged = True
        self._trials.say(f"judging trial {entrant.number} on fresh inputs", max(0.0, self._left_s()))
        self._passes(entrant)

    def _chosen(self) -> Entrant | None:
        """Who is to be used, by what the finals and the search know."""
        outcomes = {entrant.number: entrant.searched for entrant in self._entrants.values()}
        number = choice(self._lineup.finalists, self._standing(), outcomes.__getitem__)
        return next((entrant for entrant in self._alive() if entrant.number == number), None)

    def _unproven(self, chosen: Entrant) -> Entrant | None:
        """Who has to go through the longest soak: the chosen one first, then those that serve single problems, as far
        as there is time."""
        if chosen.digest not in self._proofs:
            return chosen
        left = [entrant for entrant in self._serving(chosen) if entrant.digest not in self._proofs]
        if not left or self._left_s() >= self._proof_s:
            return next(iter(left), None)
        numbers = ", ".join(str(entrant.number) for entrant in left)
        self._trials.say(f"no time to judge trial {numbers} as well, faster on a problem: the table does without")
        return None

    def _serving(self, chosen: Entrant) -> list[Entrant]:
        """Who would serve a problem beside the chosen one, of those whose build is the one of the search."""
        here = [entrant for entrant in self._alive() if entrant.is_as_searched]
        ratios = confirmed_on_each(self._lineup, self._heats, [entrant.digest for entrant in here])
        used = {each.use for each in servers(ratios, chosen.digest, self._lineup.objective)}
        return [entrant for entrant in here if entrant.digest in used and entrant is not chosen]

    def _prove(self, entrant: Entrant, chosen: Entrant) -> None:
        """The longest soak. One that fails it is out."""
        use = "the one to use" if entrant is chosen else "the best on a problem"
        said = f"judging trial {entrant.number}, {use}, through as many launches as fit in some seconds"
        self._trials.say(said, self._proving_s)
        started, entrant.is_judged = time.monotonic(), True
        outcome = self._passes(entrant, is_chosen=True)
        self._proof_s = time.monotonic() - started
        if outcome is not None:
            assert outcome.gate is not None  # it passed
            found = tuple(check for check in outcome.gate.checks if check.code in PROVEN)
            self._proofs[entrant.digest] = Proof(number=entrant.number, digest=entrant.digest, checks=found)
            self._try_other_cache(entrant)

    def _try_other_cache(self, entrant: Entrant) -> None:
        """Notes with the proof what it takes where the caches hold something else, as far as there is time."""
        if self._trials.until - time.monotonic() < entrant.heat_s:
            return
        found = self._runner.other_cache(entrant.built.artifact)
        if isinstance(found, Fault):
            self._fails(entrant, found)
        elif found is not None:
            proof = self._proofs[entrant.digest]
            self._proofs[entrant.digest] = proof.model_copy(update={"other_cache": found})

    def _passes(self, entrant: Entrant, is_chosen: bool = False) -> Outcome | None:
        """The outcome of one that passes the gate on fresh seeds; None of one that does not, and is out."""
        outcome = self._trials.judged(entrant.number, entrant.built, is_chosen)
        if outcome.verdict.has_latency:
            return outcome
        assert outcome.fault is not None  # whatever has no latency has one
        self._fails(entrant, outcome.fault)
        return None

    def _fails(self, entrant: Entrant, fault: Fault) -> None:
        entrant.is_out = True
        self._trials.refuse(entrant.number, fault, "in the finals", entrant.is_as_searched)


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
        found = plan.as_many_as_fit(ranked, costs, left_s - PROVING * self._trials.seconds, plan.slower_than(right))
        of = "" if len(found) == len(numbers) else f" of {len(numbers)} that deserve it, as many as there is time for"
        self._trials.say(f"{len(found)} finalist{'s' * (len(found) > 1)}{of}: building")
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
