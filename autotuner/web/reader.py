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
from autotuner.values.errors import AutotunerError, StoreError
from autotuner.values.sweep import Found
from autotuner.views.snapshot import Snapshot
from autotuner.views.words import about
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

    def found(self, study: str) -> Found:
        """What a study has found; nothing where it was begun, and killed before it was made."""
        with suppress(StoreError):
            of = self._summary(study)
            return Found(judged=of.judged, best_speedup=of.best_speedup, best_confirmed=of.best_confirmed)
        return Found()

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

    tag: str
    sweeps: tuple[Outlook, ...]
    """Those that are not over, then the last ones that are."""
    devices: tuple[DeviceRecord, ...]


class QueueReader:
    """Reads a store's queue; `spaces` is the operator's folder of spaces beside those that are shipped."""

    def __init__(self, reader: Reader, spaces: Path | None) -> None:
        self._store, self._folder, self._find = reader.store, spaces, reader.found
        self._look: tuple[float, Look] | None = None
        self._lock = threading.Lock()

    def look(self) -> Look:
        """The queue, not older than a moment."""
        with self._lock:
            if self._look is not None and time.monotonic() - self._look[0] < LOOK_S:
                return self._look[1]
            found, devices = outlook.outlooks(self._store, OVER, self._find), device_health.every(self._store)
            tag = tag_of(*map(tag_of_sweep, found), *map(tag_of_device, devices))
            look = Look(tag, found, devices)
            self._look = time.monotonic(), look
            return look

    def forget(self) -> None:
        """Has the next look read anew."""
        with self._lock:
            self._look = None

    def one(self, number: int) -> Outlook | None:
        """A sweep as it is; None where there is none."""
        return outlook.outlook(self._store, number, self._find) if sweeps.exists(self._store, number) else None

    def every(self) -> tuple[Outlook, ...]:
        """All sweeps that there ever were."""
        return outlook.outlooks(self._store, None, self._find)

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


# What a page shows as a word: another one as soon as the page would say something else. Some of it moves with the clock
# alone. It counts as far as a page says it, times to the minute: a page is not drawn anew at every look.


def tag_of(*shown: object) -> str:
    """The word for values that say in their repr what they are."""
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def tag_of_sweep(found: Outlook) -> str:
    """That of a sweep as it is now."""
    sweep = found.sweep
    return tag_of(
        (sweep.id, sweep.state, sweep.wish, sweep.detail, about(sweep.spent_s)),
        None if sweep.holder is None else (sweep.holder.host, sweep.holder.pid),
        (found.judged, found.best_speedup, found.best_confirmed, found.place, found.waits),
        None if found.left_s is None else about(found.left_s),
    )


def tag_of_device(device: DeviceRecord) -> str:
    """That of a device, and of who serves it."""
    held = device.holder
    return tag_of(
        (device.name, device.model, device.health, device.reason, device.remedy),
        _minute(device.seen_at) if held is None else (held.host, held.pid, held.doing, _minute(held.seen)),
    )


def _minute(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(second=0, microsecond=0)
