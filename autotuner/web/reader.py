"""What the service reads of a store: the snapshots of its studies, each made anew only when something of its study has
changed; one look at the queue for all readers of a moment; and the spaces that may be asked for."""

import hashlib
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from autotuner.jobs import outlook
from autotuner.jobs.outlook import Outlook
from autotuner.store import ListedTrial, Revision, Store, device_health, queries, sweeps
from autotuner.store.records import DeviceRecord
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.standings import StudySummary
from autotuner.tuning.workbench import load_space
from autotuner.values import config
from autotuner.values.errors import AutotunerError
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Table
from autotuner.web.wire import ListedSpace

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
        found = old.trials + queries.listed(self.store, old.name, old.revision.last)
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

    def forget(self) -> None:
        """Has what was read of studies read anew."""
        with self._lock, self._listing:
            self._kept.clear()
            self._summaries.clear()
            self._studies = (-FRESH_S, ())

    def _summary(self, name: str) -> StudySummary:
        """A study at a glance, summed up again only once it has changed."""
        revision = queries.revision(self.store, name)
        kept, summary = self._summaries.get(name, (None, None))
        if summary is None or kept != revision:
            summary = standings.summary(self.store, name)
            self._summaries[name] = revision, summary
        return summary.model_copy(update={"running": queries.running(self.store, name)})


LOOK_S = 0.5
"""Seconds for which one look at the queue is believed."""
OVER = 30
"""Sweeps that are over and still listed."""


class Look(NamedTuple):
    """One look at the queue."""

    sweeps: tuple[Outlook, ...]
    """Those that are not over, then the last ones that are."""
    devices: tuple[DeviceRecord, ...]


class QueueReader:
    """Reads a store's queue; `spaces` is the operator's folder of spaces beside those that are shipped."""

    def __init__(self, reader: Reader, spaces: Path | None) -> None:
        self._store, self._folder = reader.store, spaces
        self._look: tuple[float, Look] | None = None
        self._lock = threading.Lock()

    def look(self) -> Look:
        """The queue, not older than a moment."""
        with self._lock:
            if self._look is not None and time.monotonic() - self._look[0] < LOOK_S:
                return self._look[1]
            look = Look(outlook.outlooks(self._store, OVER), device_health.every(self._store))
            self._look = time.monotonic(), look
            return look

    def forget(self) -> None:
        """Has the next look read anew."""
        with self._lock:
            self._look = None

    def revision(self, number: int) -> int:
        """The number of a sweep's last event."""
        return max((each.id for each in sweeps.events(self._store, number, last=1)), default=0)

    def files(self) -> dict[str, Path]:
        """The files of the spaces that may be asked for, by name: those that are shipped, and the operator's."""
        folders = [config.spaces_dir(), *([self._folder] if self._folder is not None else [])]
        return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}

    def spaces(self) -> tuple[ListedSpace, ...]:
        """The spaces that can be read, by name."""
        files = ((name, path, path.stat()) for name, path in sorted(self.files().items()) if path.exists())
        found = (_listed(name, path, (seen.st_mtime_ns, seen.st_size)) for name, path, seen in files)
        return tuple(each for each in found if each is not None)


@lru_cache(maxsize=256)
def _listed(name: str, path: Path, _changed: tuple[int, int]) -> ListedSpace | None:
    """A space, read once until its file is `_changed`: that takes long, and an open page asks every few seconds. None
    where it cannot be read: the operator's folder may hold other files."""
    with suppress(OSError, AutotunerError):
        file = load_space(str(path))
        return ListedSpace(name=name, backend=file.backend, title=file.title, problems=tuple(map(str, file.problems)))
    return None


def tag_of(*shown: object) -> str:
    """What a page shows as a word: another one as soon as the page would say something else. Of tables it counts as it
    reads, and of times the minute: some of it moves with the clock alone, and a page is not drawn anew at every look.
    Other values say in their repr what they are."""
    said = [_as_it_reads(each) if isinstance(each, Table) else each for each in shown]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def _as_it_reads(table: Table) -> list[str]:
    cells = (cell for row in table.rows for cell in row.cells)
    return [f"{each.value:%F %H:%M}" if isinstance(each.value, datetime) else each.text for each in cells]
