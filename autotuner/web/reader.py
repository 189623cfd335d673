"""The snapshots of a store's studies, each made anew only when something of its study has changed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from autotuner.store import ListedTrial, Revision, Store, queries, trials
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.standings import StudySummary
from autotuner.views.snapshot import Snapshot

FRESH_S = 0.3
"""Seconds for which a revision that was looked up is believed: readers at full speed cost three looks a second."""
KEPT = 8
"""Studies whose snapshots are kept."""


class Reader:
    """The snapshots of a store. Any thread may ask."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._kept: OrderedDict[str, tuple[float, Snapshot]] = OrderedDict()
        self._studies: tuple[float, tuple[StudySummary, ...]] = (-FRESH_S, ())
        self._summaries: dict[str, tuple[Revision, StudySummary]] = {}
        self._lock, self._listing = threading.Lock(), threading.Lock()

    def study(self, wanted: str) -> Snapshot:
        """A study by its name, as it is now. Raises StoreError: no such study."""
        with self._lock:
            looked, kept = self._kept.get(wanted, (0.0, None))
            if kept is not None and time.monotonic() - looked < FRESH_S:
                return kept
            revision = queries.revision(self.store, wanted)
            if kept is None or kept.revision != revision:
                kept = Snapshot(self.store, wanted, revision, None if kept is None else self._grown(kept, revision))
            self._kept[wanted] = time.monotonic(), kept
            self._kept.move_to_end(wanted)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return kept

    def _grown(self, old: Snapshot, revision: Revision) -> tuple[ListedTrial, ...] | None:
        """The trials of an older snapshot and those recorded since; None where an old one has changed."""
        if not old.has("trials"):
            return None
        found = old.trials + trials.listed(self.store, old.name, old.revision.last)
        standing = sum(each.verdict.has_latency for each in found)
        revoked = sum(each.revoked for each in found)
        same = (len(found), standing, revoked) == (revision.trials, revision.standing, revision.revoked)
        return found if same else None

    def names(self) -> frozenset[str]:
        """Every study's name."""
        return frozenset(queries.names(self.store))

    def studies(self) -> tuple[StudySummary, ...]:
        """Every study at a glance, the most recently active first; not older than a few seconds."""
        with self._listing:  # a large store takes long, and readers of one study do not wait for it
            looked, found = self._studies
            began = time.monotonic()
            if began - looked >= FRESH_S:
                every = map(self._summary, queries.names(self.store))
                found = tuple(sorted(every, key=lambda each: each.last_activity, reverse=True))
                # A large store takes long to sum up: the longer it took, the longer it is believed.
                self._studies = time.monotonic() + 5 * (time.monotonic() - began), found
            return found

    def _summary(self, name: str) -> StudySummary:
        """A study at a glance, summed up again only once it has changed."""
        revision = queries.revision(self.store, name)
        kept, summary = self._summaries.get(name, (None, None))
        if summary is None or kept != revision:
            summary = standings.summary(self.store, name)
            self._summaries[name] = revision, summary
        return summary.model_copy(update={"running": queries.running(self.store, name)})
