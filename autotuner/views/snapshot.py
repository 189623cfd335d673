"""A study at one revision: what tables and drawings of it are made from."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any, Generic, TypeVar

from autotuner.ops import Op, op_of
from autotuner.race.tie import tie_band
from autotuner.spaces.space import SpaceFile
from autotuner.store import ListedTrial, Revision, Store, figures, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.standings import FinalsSummary
from autotuner.tuning.trial_report import GateSummary
from autotuner.values.errors import InputError

BOARD = 50
"""Entries of the leaderboard that are read at once."""

T = TypeVar("T")


class Read(Generic[T]):
    """Something of a snapshot's study that is read from the store, once."""

    def __init__(self, find: Callable[[Store, str], T]) -> None:
        self._find = find

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, snapshot: Snapshot, _: type) -> T:
        return snapshot.once(self._name, lambda: self._find(snapshot.store, snapshot.name))


class Snapshot:
    """A study at one revision. What is asked for is read once, when it is first asked for."""

    def __init__(
        self, store: Store, name: str, revision: Revision, trials: tuple[ListedTrial, ...] | None = None
    ) -> None:
        """`trials`: those that were read already."""
        self.store, self.name, self.revision = store, name, revision
        self._found: dict[str, Any] = {} if trials is None else {"trials": trials}
        self._lock = threading.RLock()

    def once(self, key: str, make: Callable[[], T]) -> T:
        """What `make` makes, made once."""
        with self._lock:
            if key not in self._found:
                self._found[key] = make()
            found: T = self._found[key]
            return found

    def has(self, key: str) -> bool:
        """Whether that was made already."""
        return key in self._found

    trials = Read(queries.listed)
    """Every recorded trial, in the order of their ends."""

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the trials."""
        return self.once("numbers", lambda: frozenset(each.number for each in self.trials))

    record = Read(queries.study)
    """The study as it was made."""

    @property
    def op(self) -> Op:
        """What is computed."""
        return op_of(self.record.problems[0])

    @property
    def baseline(self) -> str:
        """What tables call the baseline."""
        return self.record.over

    @property
    def file(self) -> SpaceFile | None:
        """The space file as it was when the study was made; None where this version cannot read it."""

        def read() -> SpaceFile | None:
            with suppress(InputError):
                return SpaceFile.stored(self.record.space_document)
            return None

        return self.once("file", read)

    summary = Read(standings.summary)
    """The study at a glance, for programs."""
    best = Read(standings.best)
    """The trial to use."""

    @property
    def gate(self) -> GateSummary | None:
        """What the gate found of the trial to use."""
        best = self.best
        return None if best is None or best.gate is None else GateSummary.of(best.gate)

    board = Read(lambda store, study: standings.leaderboard(store, study, BOARD))
    """The leaderboard's first lines."""

    @property
    def finals_summary(self) -> FinalsSummary | None:
        """What the last finals came to; None where they chose nothing."""
        return None if self.best is None else self.best.finals

    heats = Read(queries.aa_heats)
    """The A/A races."""

    @property
    def tie(self) -> float:
        """How wide a tie is, relative."""
        if self.finals_summary is not None:
            return self.finals_summary.tie
        objective = "mean" if self.file is None else self.file.objective
        return self.once("tie", lambda: tie_band(self.heats, objective))

    sessions = Read(queries.sessions)
    """The runs of the driver, the first one first."""
    confirmed = Read(standings.every_confirmed)
    """What the last finals confirmed of each trial that was in them, by its number."""

    @property
    def running(self) -> bool:
        """Whether a driver is working on it now: not a part of the snapshot."""
        return queries.running(self.store, self.name)

    @property
    def judged(self) -> int:
        """Trials whose outcome says something about their variant."""
        return sum(each.judged for each in self.trials)

    @property
    def causes(self) -> dict[str, int]:
        """Rejected trials by the code of the failure, the most frequent first."""
        codes = Counter(cause for each in self.trials if (cause := each.cause) is not None)
        return dict(codes.most_common())

    disturbed = Read(queries.disturbed)
    """Of the variants that were measured on a disturbed machine alone, the last trial of each."""
    costs = Read(figures.costs)
    """What its trials cost."""
    improvements = Read(figures.history)
    """Each trial that was the best until then."""

    def read_ahead(self) -> None:
        """Reads what the pages of a study show, what several of them show first. Raises StoreError."""
        _ = self.trials, self.board, self.best, self.gate, self.tie, self.disturbed
        _ = self.sessions, self.costs

    def times(self, numbers: tuple[int, ...]) -> dict[tuple[int, int], tuple[float, float]]:
        """What these trials and the baseline beside them took, medians in microseconds, by the problem's place among
        the study's and the trial's number."""
        blocks = self.once(f"times {numbers}", lambda: queries.blocks(self.store, self.name, numbers))
        return {key: (median(us for us, _ in each), median(us for _, us in each)) for key, each in blocks.items()}
