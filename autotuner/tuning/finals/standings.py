"""What a study came to: its leaderboard, the trial to use, and what its last finals say of both.

The store has what was recorded; here it is decided what that means. Before any finals the search's estimates rank the
trials. Finals put theirs before these; what was revoked since is out of them, and out of every list here.
"""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from statistics import fmean, median

from pydantic import Field

from autotuner.race.confirm import Confirmed, Standing, apart, confirm
from autotuner.race.statistics import student_interval
from autotuner.store import (
    Finalist,
    FinalsRecord,
    FinalsResult,
    MeasuredTrial,
    Proof,
    Store,
    StudyProgress,
    TrialRecord,
    queries,
)
from autotuner.tuning.finals import plan
from autotuner.values.errors import InputError, StoreError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.model import Model
from autotuner.values.outcome import Heat, Outcome
from autotuner.values.ratio import Speedup, combine, speedup_of

NONE = FinalsResult(finalists=(), leader=None, crowned=False, processes=0, tie=0.0)
"""Of a study without finals."""


class FinalsSummary(Model):
    """What finals came to, as it is now."""

    id: int
    finished_at: datetime
    host: str
    processes: int
    blocks: int = Field(description="of one process")
    tie: float = Field(description="relative: ratios within it are ties")
    resolution: float | None = Field(
        default=None, description="the smallest difference that these finals could show, relative"
    )
    leader: int | None = Field(description="number of the fastest finalist; null when none is left")
    speedup: Speedup | None = Field(description="the leader's t_baseline / t_variant")
    tied: tuple[int, ...] = Field(description="numbers of the finalists that tie for the lead, the leader among them")
    alike: tuple[int, ...] = Field(
        default=(), description="those of them that are shown to differ from the leader by no more than the tie band"
    )
    crowned: bool = Field(
        description="the leader is faster than the other finalists and the baseline, beyond the tie band"
    )
    judged_since: int = Field(description="trials judged after these finals began")


class Entry(MeasuredTrial):
    """A line of the leaderboard."""

    rank: int = Field(description="those that tie for the lead share it")
    speedup: Speedup = Field(description="the search estimate of t_baseline / t_variant; `mid` is of the objective")
    confirmed: Speedup | None = Field(
        default=None, description="t_baseline / t_variant in the finals; null for what was not in them"
    )
    difference: float | None = Field(
        default=None, description="the search estimate over the confirmed speedup, less 1: how much too good it was"
    )
    tied: bool = Field(default=False, description="ties for the lead with other finalists")
    beaten: bool = Field(
        default=False, description="would tie, but a race of the search has shown one that ties to be faster"
    )
    crowned: bool = Field(
        default=False, description="faster than the other finalists and the baseline, beyond the tie band"
    )


class Best(Model):
    """The trial to use, with all that is known of it: what the finals prefer, before any the best of the search."""

    entry: Entry
    record: TrialRecord
    finals: FinalsSummary | None = Field(default=None, description="the finals that chose it")
    raced: str | None = Field(default=None, description="digest of its artifact that raced in them")
    audit: CheckResult | None = Field(default=None, description="that it passed as a finalist")
    proof: Proof | None = Field(default=None, description="what they found of it once it was chosen")

    @property
    def confirmed(self) -> Speedup | None:
        """Its t_baseline / t_variant in the finals."""
        return self.entry.confirmed

    @property
    def gate(self) -> GateReport | None:
        """What the gate found, in the search and once it was chosen."""
        return _extended(self.outcome, self.audit, self.proof).gate

    @property
    def tied(self) -> tuple[int, ...]:
        """Numbers of the trials that tie for the lead, its own among them; empty without finals."""
        return () if self.finals is None else self.finals.tied

    @property
    def outcome(self) -> Outcome:
        """The whole outcome of the best trial."""
        return self.record.outcome


Quoted = tuple[float, bool]
"""t_baseline / t_variant of the trial to use, as every command quotes it; and whether finals have confirmed it."""


class Spread(Model):
    """How far apart the right variants of a study are; the slow ones by the estimate at which they were stopped."""

    measured: int
    best_us: float
    median_us: float
    worst_us: float
    worst_to_best: float = Field(description="t_worst / t_best, from the objectives")


class StudySummary(StudyProgress):
    """A study at a glance."""

    spread: Spread | None
    best_number: int | None = Field(description="trial number of the best; null when nothing is fully measured")
    best_speedup: float | None = Field(description="confirmed by the finals, where it is; else the search estimate")
    best_confirmed: bool = Field(default=False, description="whether `best_speedup` is confirmed")
    best_us: float | None = Field(description="its median in the search, microseconds")
    finals: FinalsSummary | None = Field(default=None, description="the last that came to an end")
    over: str = Field(default="", description="what speedups are over, in words")


# What can be asked ------------------------------------------------------------------------------------------------


def leaderboard(store: Store, study: str, limit: int = 10) -> tuple[Entry, ...]:
    """The `limit` fastest trials that passed the gate and stand. Raises StoreError.

    Once there were finals, those that raced in them come first, by the confirmed ratio; the rest follow by the search's
    objective and then number. Trials that were raced out are in it, marked censored: theirs is an estimate. Duplicates
    share their original's figures, the confirmed ones too.
    """
    found = _LastFinals(store, study)
    confirmed = found.entries()
    rest = queries.measured(store, study, max(0, limit - len(confirmed)), without=found.searched)
    entries = [found.entry(rank, trial) for rank, trial in enumerate(rest, len(confirmed) + 1)]
    if entries and not confirmed:
        entries[0] = found.widened(entries[0], rest[0])
    return (*confirmed[:limit], *entries)


def best(store: Store, study: str) -> Best | None:
    """The trial to use: of those that tie for the lead in the finals the preferred one (`preference`).

    Where there were none, the fastest of the search that was measured to the end and stands; None when there is none.
    Raises StoreError.
    """
    found = _LastFinals(store, study)
    trial = found.best()
    if trial is None:
        return None
    entry, record, confirmed = found.entry(1, trial), queries.trial(store, study, trial.number), found.of(trial)
    if confirmed is None:
        return Best(entry=found.widened(entry, trial), record=record)
    audit, proof = found.proven(confirmed.digest)
    return Best(entry=entry, record=record, finals=found.summary(), raced=confirmed.digest, audit=audit, proof=proof)


def required_best(store: Store, study: str) -> Best:
    """The same. Raises InputError where there is none."""
    found = best(store, study)
    if found is None:
        raise InputError(f"{study} has no variant measured to the end yet; `autotuner status` shows why")
    return found


def proven(store: Store, record: TrialRecord) -> Outcome:
    """A trial's outcome whose gate has what the last finals found of it: the audit of each finalist, and the proof of
    those that were chosen. Raises StoreError."""
    found = _LastFinals(store, record.study)
    digests = (digest for digest, each in found.finalists.items() if each.number == record.number)
    return _extended(record.outcome, *found.proven(next(digests, None)))


def _extended(outcome: Outcome, audit: CheckResult | None, proof: Proof | None) -> Outcome:
    """The outcome whose gate has what finals found."""
    report = outcome.gate
    if report is None:
        return outcome
    made_here = () if audit is None or any(each.code == audit.code for each in report.checks) else (audit,)
    more = (*made_here, *(() if proof is None else proof.checks))
    return outcome.model_copy(update={"gate": report.extended(more, report.fault)}) if more else outcome


def corrections(store: Store, study: str) -> dict[int, float]:
    """Objectives that stand in the place of the search's estimates, by trial: those that finals confirmed; +inf where
    the trial was revoked. Raises StoreError."""
    revoked = dict.fromkeys(queries.revoked(store, study), math.inf)
    confirmed = _LastFinals(store, study).confirmed()
    return revoked | {trial.number: one.log_ratio.mid for one, trial in confirmed}


def every_confirmed(store: Store, study: str) -> dict[int, Speedup]:
    """t_baseline / t_variant of every trial that the last finals confirmed and that stands. Raises StoreError."""
    return {trial.number: one.log_ratio.speedup for one, trial in _LastFinals(store, study).confirmed()}


def quoted(store: Store, study: str) -> Quoted | None:
    """The speedup of the trial to use; None where there is none. Raises StoreError."""
    found = _LastFinals(store, study)
    return found.quoted(found.best())


def summary(store: Store, study: str) -> StudySummary:
    """One study at a glance. Raises StoreError: no such study."""
    found = _LastFinals(store, study)
    top = found.best()
    quoted = found.quoted(top)
    return StudySummary(
        **dict(queries.progress(store, study)),
        spread=_spread(queries.latencies(store, study)),
        best_number=None if top is None else top.number,
        best_speedup=None if quoted is None else quoted[0],
        best_confirmed=quoted is not None and quoted[1],
        best_us=None if top is None else top.median_us,
        finals=found.summary(),
        over=queries.study(store, study).over,
    )


def studies(store: Store) -> tuple[StudySummary, ...]:
    """Every study of the store, the most recently active first."""
    every = (summary(store, name) for name in queries.names(store))
    return tuple(sorted(every, key=lambda each: each.last_activity, reverse=True))


def _spread(latencies: Sequence[tuple[float, float]]) -> Spread | None:
    if not latencies:
        return None
    (best, best_us), (worst, worst_us) = latencies[0], latencies[-1]
    return Spread(
        measured=len(latencies),
        best_us=best_us,
        median_us=median(us for _, us in latencies),
        worst_us=worst_us,
        worst_to_best=math.exp(worst - best),
    )


def finals(store: Store, study: str) -> FinalsRecord | None:
    """The finals that came to an end last; None when none did. Raises StoreError.

    Their standing is as it is now: trials that were revoked since are not in it.
    """
    record = queries.finals(store, study)
    return None if record is None else record.model_copy(update={"standing": standing(record)})


# Which finalist to use: what the finals and the races of the search know of each, put together ----------------------


def preference(number: int, outcome: Outcome) -> tuple[float, int, int, int]:
    """Sorts trials that are as fast as each other: the smallest is preferred.

    Accuracy first, as the largest error in tolerances over all cases of the gate, in tenths; then registers and shared
    memory, of which a small need leaves room for other work beside it, or on the CPU the stack; then the number.
    """
    cases = [case for check in (outcome.gate.checks if outcome.gate else ()) for case in check.cases]
    worst = max((case.errors.worst_ratio for case in cases), default=math.inf)
    resources = outcome.artifact.resources if outcome.artifact else {}
    memory = resources.get("shared_bytes", resources.get("stack_bytes", 0))
    return round(worst, 1), resources.get("registers", 0), memory, number


def rivals(finalists: Sequence[Finalist], standing: Standing) -> tuple[Confirmed, ...]:
    """The finalists that may be the fastest by all that is known, the fastest in the finals first.

    They tie for the lead in the finals, and no race of the search has shown another one that ties to be faster. What
    the finals, with their several processes, have shown to be slower counts no more for a race that it won.
    """
    by_digest = {finalist.digest: finalist for finalist in finalists}
    tied = sorted((each for each in standing.finalists if each.tied), key=lambda each: each.log_ratio.mid)
    numbers = {by_digest[each.digest].number for each in tied}
    left = [each for each in tied if not numbers.intersection(by_digest[each.digest].slower_than)]
    return tuple(left or tied)  # races may contradict each other


def alike(found: Sequence[Confirmed], standing: Standing) -> tuple[Confirmed, ...]:
    """Of rivals those that are known to be as fast as the first, so that something else may decide."""
    if not found or found[0].digest != standing.leader:
        return tuple(found[:1])
    return tuple(each for each in found if each.alike)


def choice(finalists: Sequence[Finalist], standing: Standing, outcome_of: Callable[[int], Outcome]) -> int | None:
    """Number of the finalist to use, None when none is left: the fastest; of those that are shown to be as fast the
    preferred one. What the finals cannot tell apart is not taken to be equal."""
    by_digest = {finalist.digest: finalist.number for finalist in finalists}
    numbers = [by_digest[each.digest] for each in alike(rivals(finalists, standing), standing)]
    return min(numbers, key=lambda number: preference(number, outcome_of(number)), default=None)


def standing(record: FinalsRecord) -> FinalsResult | None:
    """The standing of finals, drawn anew from the heats of those that are left: who ties with whom depends on all of
    them. None while the finals are not over."""
    if record.standing is None or not record.revoked:
        return record.standing
    gone = {finalist.digest for finalist in record.finalists if finalist.number in record.revoked}
    heats = [_heat_without(heat, gone) for heat in record.heats]
    drawn = confirm(heats, record.tie, record.objective, is_last=True, raced=record.raced)
    return FinalsResult(**dict(drawn), proofs=record.standing.proofs, audits=record.standing.audits)


def _heat_without(heat: Heat, gone: set[str]) -> Heat:
    kept = [place for place, digest in enumerate(heat.entrants) if digest not in gone]
    return heat.model_copy(
        update={
            "entrants": tuple(heat.entrants[place] for place in kept),
            "us": tuple(heat.us[place] for place in kept),
            "faults": {new: heat.faults[old] for new, old in enumerate(kept) if old in heat.faults},
        }
    )


# Of the last finals ---------------------------------------------------------------------------------------------------


class _LastFinals:
    """What the finals that came to an end last say of the study's trials: nothing of any where none did."""

    def __init__(self, store: Store, study: str) -> None:
        """Raises StoreError, also where they say something of a variant that was not in them."""
        self._store, self._study = store, study
        self._record = record = finals(store, study)
        self._standing = NONE if record is None or record.standing is None else record.standing
        self.finalists = {} if record is None else record.by_digest
        try:
            self._by_searched = {self.finalists[each.digest].searched: each for each in self._standing.finalists}
        except KeyError as error:
            why = f"finals {record.id if record else 0} of {study} confirm {error}, which was not in them"
            raise StoreError(f"the store holds a record that cannot be read ({why}): restore a copy") from None
        found = rivals(tuple(self.finalists.values()), self._standing)
        self._fastest = found[0] if found else None
        self._leading = frozenset(each.digest for each in found)
        self._tied = self._numbers(found)
        """Those that tie for the lead, the leader among them."""
        self._alike = self._numbers(alike(found, self._standing))
        """Those that are known to be as fast as the leader."""
        leads = self._fastest is not None and self._fastest.digest == self._standing.leader
        self._is_crowned = leads and self._standing.crowned

    def _numbers(self, some: Sequence[Confirmed]) -> tuple[int, ...]:
        return tuple(sorted(self.finalists[each.digest].number for each in some))

    @property
    def _leader(self) -> int | None:
        return None if self._fastest is None else self.finalists[self._fastest.digest].number

    @property
    def searched(self) -> tuple[str, ...]:
        """Digests, as the search had them, of the artifacts that were confirmed."""
        return tuple(self._by_searched)

    def of(self, trial: MeasuredTrial) -> Confirmed | None:
        """What was confirmed of the trial; a duplicate shares its original's."""
        return None if trial.artifact is None else self._by_searched.get(trial.artifact)

    def confirmed(self) -> list[tuple[Confirmed, MeasuredTrial]]:
        """What they say of each trial that was in them and stands, the fastest first; those that tie for the lead come
        before all others. One that is not known well may tie with the leader although it looks slower than one that
        does not."""
        trials = queries.measured(self._store, self._study, artifacts=self.searched) if self._by_searched else ()
        found = [(one, trial) for trial in trials if (one := self.of(trial)) is not None]
        return sorted(found, key=lambda pair: (not self._ties(pair[0]), pair[0].log_ratio.mid, pair[1].number))

    def _ties(self, one: Confirmed) -> bool:
        """Whether it may be the fastest by all that is known."""
        return one.digest in self._leading

    def entries(self) -> tuple[Entry, ...]:
        """The lines of these; those that tie for the lead share a rank."""
        pairs = enumerate(self.confirmed(), start=1)
        return tuple(self.entry(1 if self._ties(one) else rank, trial) for rank, (one, trial) in pairs)

    def best(self) -> MeasuredTrial | None:
        """The trial to use."""
        trials = {trial.number: trial for _, trial in self.confirmed()}
        finalists = tuple(self.finalists.values())
        number = choice(finalists, self._standing, lambda each: queries.trial(self._store, self._study, each).outcome)
        if number in trials:
            return trials[number]
        # Duplicates share their original's figures; the original has the proof, so it is the one.
        return next(iter(queries.measured(self._store, self._study, 1, fully=True)), None)

    def entry(self, rank: int, trial: MeasuredTrial) -> Entry:
        """The trial's line in the leaderboard."""
        confirmed, estimate = self.of(trial), trial.log_ratio.speedup
        in_finals = None if confirmed is None else confirmed.log_ratio.speedup
        return Entry.taken_from(
            trial,
            rank=rank,
            speedup=estimate,
            confirmed=in_finals,
            difference=None if in_finals is None else estimate.mid / in_finals.mid - 1,
            tied=trial.number in self._tied and len(self._tied) > 1,
            beaten=confirmed is not None and confirmed.tied and not self._ties(confirmed),
            crowned=self._is_crowned and self._leader == trial.number,
        )

    def widened(self, entry: Entry, trial: MeasuredTrial) -> Entry:
        """The line of a trial that was in no finals, its interval as wide as processes are apart. Its race was in one,
        and a variant's place in memory alone makes it faster or slower by some per cent in the next. How far they are
        apart is known of the incumbents, of which it may be one: the interval has Student's, too, around all its
        races."""
        own, over = trial.log_ratio, combine(queries.study(self._store, self._study).objective)
        raced = plan.incumbents(queries.races(self._store, self._study, plan.RACES))
        spread = apart(raced.values(), over)
        if not spread.freedom:
            return entry
        its_own = [races for (incumbent, _), races in raced.items() if incumbent == trial.artifact]
        values = [own.mid, *map(over, chain(*its_own))]
        found = student_interval(fmean(values), spread.deviation / math.sqrt(len(values)), spread.freedom)
        whole = own.model_copy(update={"low": min(own.low, found.low), "high": max(own.high, found.high)})
        return entry.model_copy(update={"speedup": whole.speedup})

    def quoted(self, top: MeasuredTrial | None) -> Quoted | None:
        """Its speedup, as every command quotes it."""
        if top is None:
            return None
        confirmed = self.of(top)
        objective = top.log_ratio.mid if confirmed is None else confirmed.log_ratio.mid
        return speedup_of(objective), confirmed is not None

    def proven(self, digest: str | None) -> tuple[CheckResult | None, Proof | None]:
        """The audit that a finalist passed, and what was found of it once it was chosen."""
        proof = next((each for each in self._standing.proofs if each.digest == digest), None)
        return self._standing.audits.get(digest or ""), proof

    def summary(self) -> FinalsSummary | None:
        """All of it in short; None where there were none."""
        record, standing = self._record, self._standing
        if record is None or record.finished_at is None or standing is NONE:
            return None
        return FinalsSummary.taken_from(
            record,
            processes=standing.processes,
            tie=standing.tie,
            resolution=standing.resolution,
            leader=self._leader,
            speedup=None if self._fastest is None else self._fastest.log_ratio.speedup,
            tied=self._tied,
            alike=self._alike,
            crowned=self._is_crowned,
            judged_since=queries.judged_count(self._store, record.study, record.started_at),
        )
