"""What a study came to: its leaderboard, the trial to use, and what its last finals say of both.

The store has what was recorded; here it is decided what that means. Before any finals the search's estimates rank the
trials. Finals put theirs before these; what was revoked since is out of them, and out of every list here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from autotuner.race.confirm import Confirmed
from autotuner.store import (
    Ending,
    FinalsRecord,
    MeasuredTrial,
    Proof,
    Store,
    StudyProgress,
    TrialRecord,
    queries,
)
from autotuner.tuning.choice import alike, choice, rivals, standing
from autotuner.values.errors import StoreError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.model import Model
from autotuner.values.outcome import Outcome
from autotuner.values.ratio import Speedup, speedup_of
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict


class FinalsSummary(Model):
    """What finals came to, as it is now."""

    id: int
    finished_at: datetime
    host: str
    processes: int
    blocks: int = Field(description="of one process")
    tie: float
    resolution: float | None = Field(
        default=None, description="the smallest difference that these finals could show, relative"
    )
    leader: int | None = Field(description="number of the fastest finalist; None when none is left")
    speedup: Speedup | None = Field(description="the leader's t_baseline / t_variant")
    tied: tuple[int, ...] = Field(description="numbers of the finalists that tie for the lead, the leader among them")
    alike: tuple[int, ...] = Field(
        default=(), description="those of them that are shown to differ from the leader by no more than the tie band"
    )
    crowned: bool = Field(
        description="the leader is faster than the other finalists and the baseline, beyond the tie band"
    )
    judged_since: int = Field(description="trials judged after these finals began")


class Entry(Model):
    """A line of the leaderboard.

    Over several problems, microseconds are geometric means, or the worst problem's where the objective is the largest
    log-ratio.
    """

    rank: int = Field(description="those that tie for the lead share it")
    number: int = Field(description="Optuna's trial number")
    variant: Variant
    verdict: Verdict
    median_us: float = Field(description="microseconds of one forward of the variant")
    baseline_us: float = Field(description="microseconds of one forward of the baseline, in the same blocks")
    speedup: Speedup = Field(description="the search estimate of t_baseline / t_variant; `mid` is of the objective")
    censored: bool = Field(description="stopped early because it was clearly slower: an estimate")
    confirmed: Speedup | None = Field(
        default=None, description="t_baseline / t_variant in the finals; None for what was not in them"
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
    def crowned(self) -> bool:
        """Whether it is faster than the other finalists and the baseline, beyond the tie band."""
        return self.entry.crowned

    @property
    def outcome(self) -> Outcome:
        """The whole outcome of the best trial."""
        return self.record.outcome


class Quoted(Model):
    """The speedup of the trial to use, as every command quotes it."""

    speedup: float = Field(description="t_baseline / t_variant")
    confirmed: bool = Field(description="by the finals; else it is the search estimate")


class StudySummary(StudyProgress):
    """A study at a glance."""

    best_number: int | None = Field(description="trial number of the best; None when nothing is fully measured")
    best_speedup: float | None = Field(description="confirmed by the finals, where it is; else the search estimate")
    best_confirmed: bool = Field(default=False, description="whether `best_speedup` is confirmed")
    best_us: float | None = Field(description="its median in the search, microseconds")
    finals: FinalsSummary | None = Field(default=None, description="the last that came to an end")


# What can be asked ------------------------------------------------------------------------------------------------


def leaderboard(store: Store, study: str, limit: int = 10) -> tuple[Entry, ...]:
    """The `limit` fastest trials that passed the gate and stand. Raises StoreError.

    Once there were finals, those that raced in them come first, by the confirmed ratio; the rest follow by the search's
    objective and then number. Trials that were raced out are in it, marked censored: theirs is an estimate. Duplicates
    share their original's figures, the confirmed ones too.
    """
    found = _result(store, study)
    if found is None:
        trials = queries.measured(store, study, limit)
        return tuple(_entry(rank, trial) for rank, trial in enumerate(trials, start=1))
    confirmed = _confirmed_entries(queries.measured(store, study, artifacts=found.searched), found)
    rest = queries.measured(store, study, max(0, limit - len(confirmed)), without=found.searched)
    return (*confirmed[:limit], *(_entry(rank, trial) for rank, trial in enumerate(rest, start=len(confirmed) + 1)))


def best(store: Store, study: str) -> Best | None:
    """The trial to use: of those that tie for the lead in the finals the preferred one (`preference`).

    Where there were none, the fastest of the search that was measured to the end and stands; None when there is none.
    Raises StoreError.
    """
    found = _result(store, study)
    trial = _best(store, study, found)
    if trial is None:
        return None
    entry, record = _entry(1, trial, found), queries.trial(store, study, trial.number)
    confirmed = None if found is None else found.of(trial)
    if found is None or confirmed is None:
        return Best(entry=entry, record=record)
    proof = next((each for each in found.proofs if each.digest == confirmed.digest), None)
    return Best(
        entry=entry,
        record=record,
        finals=found.summary(store),
        raced=confirmed.digest,
        audit=found.standing.audits.get(confirmed.digest),
        proof=proof,
    )


def confirmed(store: Store, study: str, number: int) -> Speedup | None:
    """A trial's t_baseline / t_variant in the last finals; None where it was not in them. Raises StoreError."""
    return every_confirmed(store, study).get(number)


def proven(store: Store, record: TrialRecord) -> Outcome:
    """A trial's outcome whose gate has what the last finals found of it: the audit of each finalist, and the proof of
    those that were chosen. Raises StoreError."""
    found = _result(store, record.study)
    finalists = () if found is None else found.record.finalists
    digest = next((each.digest for each in finalists if each.number == record.number), None)
    if found is None or digest is None:
        return record.outcome
    proof = next((each for each in found.proofs if each.digest == digest), None)
    return _extended(record.outcome, found.standing.audits.get(digest), proof)


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
    return revoked | {number: one.log_ratio.mid for number, one in _every_confirmed(store, study).items()}


def every_confirmed(store: Store, study: str) -> dict[int, Speedup]:
    """t_baseline / t_variant of every trial that the last finals confirmed and that stands. Raises StoreError."""
    return {number: one.log_ratio.speedup for number, one in _every_confirmed(store, study).items()}


def confirmed_entries(store: Store, study: str) -> tuple[Entry, ...]:
    """Every trial that the last finals confirmed and that stands, those that may lead first. Raises StoreError."""
    found = _result(store, study)
    if found is None:
        return ()
    return _confirmed_entries(queries.measured(store, study, artifacts=found.searched), found)


def quoted(store: Store, study: str) -> Quoted | None:
    """The speedup of the trial to use; None where there is none. Raises StoreError."""
    found = _result(store, study)
    return _quoted(_best(store, study, found), found)


def summary(store: Store, study: str) -> StudySummary:
    """One study at a glance. Raises StoreError: no such study."""
    return _summary(store, queries.progress(store, study))


def studies(store: Store) -> tuple[StudySummary, ...]:
    """Every study of the store, the most recently active first."""
    return tuple(_summary(store, each) for each in queries.every_progress(store))


def finals(store: Store, study: str) -> FinalsRecord | None:
    """The finals that came to an end last; None when none did. Raises StoreError.

    Their standing is as it is now: trials that were revoked since are not in it.
    """
    record = queries.finals(store, study)
    return None if record is None else record.model_copy(update={"standing": standing(record)})


# Of the last finals ---------------------------------------------------------------------------------------------------


class _Result:
    """What finals that came to an end say of the study's trials."""

    def __init__(self, record: FinalsRecord, standing: Ending) -> None:
        self.record, self.standing, self.proofs = record, standing, standing.proofs
        finalists = record.by_digest
        self._by_searched = {finalists[each.digest].searched: each for each in standing.finalists}
        found = rivals(record.finalists, standing)
        numbers = [finalists[each.digest].number for each in found]
        self.leader = numbers[0] if numbers else None
        self._leading = frozenset(each.digest for each in found)
        self.tied = tuple(sorted(numbers))
        """Numbers of the finalists that tie for the lead, the leader among them."""
        self.alike = tuple(sorted(finalists[each.digest].number for each in alike(found, standing)))
        """Numbers of those that are known to be as fast as the leader."""
        self._fastest = found[0] if found else None

    def ties(self, one: Confirmed) -> bool:
        """Whether it may be the fastest by all that is known."""
        return one.digest in self._leading

    def lost(self, one: Confirmed) -> bool:
        """Whether the finals do not tell it from the leader, but a race of the search does."""
        return one.tied and not self.ties(one)

    @property
    def crowned(self) -> bool:
        """Whether the leader is the winner."""
        leads = self._fastest is not None and self._fastest.digest == self.standing.leader
        return self.standing.crowned and leads

    @property
    def searched(self) -> tuple[str, ...]:
        """Digests, as the search had them, of the artifacts that were confirmed."""
        return tuple(self._by_searched)

    def of(self, trial: MeasuredTrial) -> Confirmed | None:
        """What was confirmed of the trial; a duplicate shares its original's."""
        return None if trial.artifact is None else self._by_searched.get(trial.artifact)

    def summary(self, store: Store) -> FinalsSummary:
        """All of it in short."""
        record, standing = self.record, self.standing
        assert record.finished_at is not None
        leader = self._fastest
        return FinalsSummary(
            id=record.id,
            finished_at=record.finished_at,
            host=record.host,
            processes=standing.processes,
            blocks=record.blocks,
            tie=standing.tie,
            resolution=standing.resolution,
            leader=self.leader,
            speedup=None if leader is None else leader.log_ratio.speedup,
            tied=self.tied,
            alike=self.alike,
            crowned=self.crowned,
            judged_since=queries.judged_since(store, record.study, record.started_at),
        )


def _result(store: Store, study: str) -> _Result | None:
    """Of the finals that came to an end last; None when none did. Raises StoreError where they say something of a
    variant that was not in them."""
    record = finals(store, study)
    if record is None or record.standing is None:
        return None
    try:
        return _Result(record, record.standing)
    except KeyError as error:
        why = f"finals {record.id} of {study} confirm {error}, which was not in them"
        raise StoreError(f"the store holds a record that cannot be read ({why}): restore a copy") from None


def _every_confirmed(store: Store, study: str) -> dict[int, Confirmed]:
    """What the last finals say of each trial that was in them; a duplicate shares its original's."""
    found = _result(store, study)
    if found is None:
        return {}
    pairs = [(trial.number, found.of(trial)) for trial in queries.measured(store, study, artifacts=found.searched)]
    return {number: one for number, one in pairs if one is not None}


def _confirmed_entries(trials: Sequence[MeasuredTrial], found: _Result) -> tuple[Entry, ...]:
    """What was in the finals, the fastest first; those that tie for the lead come before all others and share a rank.

    One that is not known well may tie with the leader although it looks slower than one that does not.
    """

    def place(pair: tuple[Confirmed, MeasuredTrial]) -> tuple[bool, float, int]:
        confirmed, trial = pair
        return not found.ties(confirmed), confirmed.log_ratio.mid, trial.number

    pairs = [(confirmed, trial) for trial in trials if (confirmed := found.of(trial)) is not None]
    return tuple(
        _entry(1 if found.ties(confirmed) else rank, trial, found)
        for rank, (confirmed, trial) in enumerate(sorted(pairs, key=place), start=1)
    )


def _best(store: Store, study: str, found: _Result | None) -> MeasuredTrial | None:
    if found is not None:
        trials = {each.number: each for each in queries.measured(store, study, artifacts=found.searched)}
        number = choice(found.record.finalists, found.standing, lambda each: queries.trial(store, study, each).outcome)
        if number in trials:
            return trials[number]
    # Duplicates share their original's figures; the original has the proof, so it is the one.
    return next(iter(queries.measured(store, study, 1, fully=True)), None)


def _entry(rank: int, trial: MeasuredTrial, found: _Result | None = None) -> Entry:
    confirmed = None if found is None else found.of(trial)
    estimate, in_finals = trial.log_ratio.speedup, None if confirmed is None else confirmed.log_ratio.speedup
    return Entry(
        rank=rank,
        number=trial.number,
        variant=trial.variant,
        verdict=trial.verdict,
        median_us=trial.median_us,
        baseline_us=trial.baseline_us,
        speedup=estimate,
        censored=trial.censored,
        confirmed=in_finals,
        difference=None if in_finals is None else estimate.mid / in_finals.mid - 1,
        tied=found is not None and trial.number in found.tied and len(found.tied) > 1,
        beaten=found is not None and confirmed is not None and found.lost(confirmed),
        crowned=found is not None and found.crowned and found.leader == trial.number,
    )


def _quoted(top: MeasuredTrial | None, found: _Result | None) -> Quoted | None:
    if top is None:
        return None
    confirmed = None if found is None else found.of(top)
    objective = top.log_ratio.mid if confirmed is None else confirmed.log_ratio.mid
    return Quoted(speedup=speedup_of(objective), confirmed=confirmed is not None)


def _summary(store: Store, progress: StudyProgress) -> StudySummary:
    found = _result(store, progress.name)
    top = _best(store, progress.name, found)
    quoted = _quoted(top, found)
    return StudySummary(
        **dict(progress),
        best_number=None if top is None else top.number,
        best_speedup=None if quoted is None else quoted.speedup,
        best_confirmed=quoted is not None and quoted.confirmed,
        best_us=None if top is None else top.median_us,
        finals=None if found is None else found.summary(store),
    )
