"""What a study came to: its leaderboard, the trial to use, and what its last finals say of both.

The store has what was recorded; here it is decided what that means. Before any finals the search's estimates rank the
trials. Finals put theirs before these; what was revoked since is out of them, and out of every list here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from autotuner.measure.confirm import Confirmed, Standing, confirm
from autotuner.store import FinalsRecord, MeasuredTrial, Store, StudyProgress, TrialRecord, queries
from autotuner.values.model import Model
from autotuner.values.outcome import Heat, Interval, MeanInterval, Outcome
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
    leader: int | None = Field(description="number of the fastest finalist; None when none is left")
    speedup: MeanInterval | None = Field(description="the leader's t_baseline / t_variant")
    tied: tuple[int, ...] = Field(description="numbers of the finalists that tie for the lead, the leader among them")
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
    speedup: Interval = Field(description="the search estimate of t_baseline / t_variant; `median` is exp(-objective)")
    censored: bool = Field(description="stopped early because it was clearly slower: an estimate")
    confirmed: MeanInterval | None = Field(
        default=None, description="t_baseline / t_variant in the finals; None for what was not in them"
    )
    difference: float | None = Field(
        default=None, description="the search estimate over the confirmed speedup, less 1: how much too good it was"
    )
    tied: bool = Field(default=False, description="ties for the lead with other finalists")
    crowned: bool = Field(
        default=False, description="faster than the other finalists and the baseline, beyond the tie band"
    )


class Best(Model):
    """The trial to use, with all that is known of it: what the finals prefer, before any the best of the search."""

    entry: Entry
    record: TrialRecord
    finals: FinalsSummary | None = Field(default=None, description="the finals that chose it")
    raced: str | None = Field(default=None, description="digest of its artifact that raced in them")

    @property
    def confirmed(self) -> MeanInterval | None:
        """Its t_baseline / t_variant in the finals."""
        return self.entry.confirmed

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


class StudySummary(StudyProgress):
    """A study at a glance."""

    best_number: int | None = Field(description="trial number of the best; None when nothing is fully measured")
    best_speedup: float | None = Field(description="the search estimate; `finals` has what was confirmed")
    best_us: float | None = Field(description="its median, microseconds")
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
    return Best(entry=entry, record=record, finals=found.summary(store), raced=confirmed.digest)


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


# Deciding ---------------------------------------------------------------------------------------------------------


def preference(number: int, outcome: Outcome) -> tuple[float, int, int, int]:
    """Sorts trials that tie: the smallest is preferred.

    Accuracy first, as the largest error in tolerances over all cases of the gate, in tenths; then registers and shared
    memory, of which a small need leaves room for other work beside it, or on the CPU the stack; then the number.
    """
    cases = [case for check in (outcome.gate.checks if outcome.gate else ()) for case in check.cases]
    worst = max((case.errors.worst_ratio for case in cases), default=math.inf)
    resources = outcome.artifact.resources if outcome.artifact else {}
    memory = resources.get("shared_bytes", resources.get("stack_bytes", 0))
    return round(worst, 1), resources.get("registers", 0), memory, number


def standing(record: FinalsRecord) -> Standing | None:
    """The standing of finals, drawn anew from the heats of those that are left: who ties with whom depends on all of
    them. None while the finals are not over."""
    if record.standing is None or not record.revoked:
        return record.standing
    gone = {finalist.digest for finalist in record.finalists if finalist.number in record.revoked}
    return confirm([_heat_without(heat, gone) for heat in record.heats], record.tie, record.objective)


def _heat_without(heat: Heat, gone: set[str]) -> Heat:
    kept = [place for place, digest in enumerate(heat.entrants) if digest not in gone]
    return heat.model_copy(
        update={
            "entrants": tuple(heat.entrants[place] for place in kept),
            "us": tuple(heat.us[place] for place in kept),
            "faults": {new: heat.faults[old] for new, old in enumerate(kept) if old in heat.faults},
        }
    )


class _Result:
    """What finals that came to an end say of the study's trials."""

    def __init__(self, record: FinalsRecord, standing: Standing) -> None:
        self.record, self.standing = record, standing
        finalists = record.by_digest
        self._by_searched = {finalists[each.digest].searched: each for each in standing.finalists}
        self.leader = None if standing.leader is None else finalists[standing.leader].number
        tied = [finalists[each.digest].number for each in standing.finalists if each.tied]
        self.tied = tuple(sorted(tied))
        """Numbers of the finalists that tie for the lead, the leader among them."""

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
        speedups = [speedup_of(each.log_ratio) for each in standing.finalists if each.digest == standing.leader]
        return FinalsSummary(
            id=record.id,
            finished_at=record.finished_at,
            host=record.host,
            processes=standing.processes,
            blocks=record.blocks,
            tie=standing.tie,
            leader=self.leader,
            speedup=speedups[0] if speedups else None,
            tied=self.tied,
            crowned=standing.crowned,
            judged_since=queries.judged_since(store, record.study, record.started_at),
        )


def _result(store: Store, study: str) -> _Result | None:
    """Of the finals that came to an end last; None when none did."""
    record = finals(store, study)
    return None if record is None or record.standing is None else _Result(record, record.standing)


def speedup_of(log: MeanInterval) -> MeanInterval:
    """t_baseline / t_variant from ln(t_variant / t_baseline): the ends change places."""
    return MeanInterval(low=math.exp(-log.high), mean=math.exp(-log.mean), high=math.exp(-log.low), level=log.level)


def _confirmed_entries(trials: Sequence[MeasuredTrial], found: _Result) -> tuple[Entry, ...]:
    """What was in the finals, the fastest first; those that tie for the lead come before all others and share a rank.

    One that is not known well may tie with the leader although it looks slower than one that does not.
    """

    def place(pair: tuple[Confirmed, MeasuredTrial]) -> tuple[bool, float, int]:
        confirmed, trial = pair
        return not confirmed.tied, confirmed.log_ratio.mean, trial.number

    pairs = [(confirmed, trial) for trial in trials if (confirmed := found.of(trial)) is not None]
    return tuple(
        _entry(1 if confirmed.tied else rank, trial, found)
        for rank, (confirmed, trial) in enumerate(sorted(pairs, key=place), start=1)
    )


def _best(store: Store, study: str, found: _Result | None) -> MeasuredTrial | None:
    if found is not None:
        trials = [
            each for each in queries.measured(store, study, artifacts=found.searched) if each.number in found.tied
        ]
        if trials:
            return min(
                trials, key=lambda each: preference(each.number, queries.trial(store, study, each.number).outcome)
            )
    # Duplicates share their original's figures; the original has the proof, so it is the one.
    return next(iter(queries.measured(store, study, 1, fully=True)), None)


def _entry(rank: int, trial: MeasuredTrial, found: _Result | None = None) -> Entry:
    confirmed = None if found is None else found.of(trial)
    speedup = None if confirmed is None else speedup_of(confirmed.log_ratio)
    interval = Interval(low=math.exp(-trial.high), median=math.exp(-trial.objective), high=math.exp(-trial.low))
    return Entry(
        rank=rank,
        number=trial.number,
        variant=trial.variant,
        verdict=trial.verdict,
        median_us=trial.median_us,
        baseline_us=trial.baseline_us,
        speedup=interval,
        censored=trial.censored,
        confirmed=speedup,
        difference=None if speedup is None else interval.median / speedup.mean - 1,
        tied=found is not None and confirmed is not None and confirmed.tied and len(found.tied) > 1,
        crowned=found is not None and found.standing.crowned and found.leader == trial.number,
    )


def _summary(store: Store, progress: StudyProgress) -> StudySummary:
    found = _result(store, progress.name)
    top = _best(store, progress.name, found)
    return StudySummary(
        **dict(progress),
        best_number=None if top is None else top.number,
        best_speedup=None if top is None else math.exp(-top.objective),
        best_us=None if top is None else top.median_us,
        finals=None if found is None else found.summary(store),
    )
