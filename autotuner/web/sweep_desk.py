"""The queue as the service sees it: what is there, and what may be asked of it by a caller who may change something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from autotuner.jobs import outlook, queue
from autotuner.jobs.outlook import Outlook, Progress
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, device_health, sweeps
from autotuner.store.sweep_records import DeviceRecord, EventRecord, SweepRecord
from autotuner.tuning.workbench import load_space
from autotuner.values import config
from autotuner.values.errors import AutotunerError, InputError
from autotuner.values.sweep import State
from autotuner.values.validation import no_such
from autotuner.web import tags
from autotuner.web.sweep_models import SpaceEntry, SweepAsk

FRESH_S = 0.5
"""Seconds for which one look at the queue is believed."""
LAST = 200
"""Events of a sweep that a page shows."""
OVER = 30
"""Sweeps that are over and still listed."""
VERBS: dict[str, Callable[[Store, int], SweepRecord]] = {
    "pause": queue.pause,
    "resume": queue.resume,
    "cancel": queue.cancel,
    "retry": queue.retry,
}


class Look(NamedTuple):
    """One look at the queue."""

    tag: str
    sweeps: tuple[Outlook, ...]
    """Those that are not over, then the last ones that are."""
    devices: tuple[DeviceRecord, ...]


class SweepDesk:
    """`reader` is only read from; `writer` is None where nothing may be changed."""

    def __init__(self, reader: Store, writer: Store | None, spaces: Path | None) -> None:
        self._reader, self._writer, self._folder = reader, writer, spaces
        self._progress = Progress(reader)
        self._entries: dict[Path, tuple[tuple[int, int], SpaceEntry | None]] = {}
        self._look: tuple[float, Look] | None = None
        self._lock = threading.Lock()

    # Reading ----------------------------------------------------------------------------------------------------------

    def look(self) -> Look:
        """The queue, not older than a moment."""
        with self._lock:
            if self._look is not None and time.monotonic() - self._look[0] < FRESH_S:
                return self._look[1]
            found, devices = outlook.outlooks(self._reader, OVER, self._progress), self.devices()
            tag = tags.of(*map(tags.of_sweep, found), *map(tags.of_device, devices))
            look = Look(tag, found, devices)
            self._look = time.monotonic(), look
            return look

    def one(self, number: int) -> Outlook | None:
        """A sweep as it is; None where there is none."""
        return outlook.outlook(self._reader, number, self._progress) if sweeps.exists(self._reader, number) else None

    def every(self) -> tuple[Outlook, ...]:
        """All sweeps that there ever were."""
        return outlook.outlooks(self._reader, None, self._progress)

    def count_by_state(self) -> dict[State, int]:
        """How many sweeps are in each state."""
        return sweeps.count_by_state(self._reader)

    def devices(self) -> tuple[DeviceRecord, ...]:
        """The devices that were ever served."""
        return device_health.every(self._reader)

    def state(self, number: int) -> SweepRecord:
        """A sweep as it is. Raises StoreError: no such sweep."""
        return sweeps.one(self._reader, number)

    def group(self, sweep: SweepRecord) -> tuple[Outlook, ...]:
        """The sweeps of the group that it belongs to; none where it was asked for alone."""
        found = () if sweep.group is None else sweeps.group(self._reader, sweep.group)
        return tuple(outlook.outlook(self._reader, each.id, self._progress) for each in found)

    def events(self, number: int, after: int = 0, last: int | None = None) -> tuple[EventRecord, ...]:
        """What happened to a sweep, the oldest first."""
        return sweeps.events(self._reader, number, after, last=last)

    def events_by_kind(self) -> dict[str, int]:
        """How many events of each kind there ever were."""
        return sweeps.events_by_kind(self._reader)

    def revision(self, number: int) -> int:
        """The number of a sweep's last event."""
        return max((each.id for each in self.events(number, last=1)), default=0)

    def spaces(self) -> dict[str, Path]:
        """The files of the spaces that may be asked for, by name: those that are shipped, and the operator's."""
        folders = [config.spaces_dir(), *([self._folder] if self._folder is not None else [])]
        return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}

    def space_entries(self) -> tuple[SpaceEntry, ...]:
        """The spaces that can be read, by name."""
        found = (self._entry(name, path) for name, path in sorted(self.spaces().items()))
        return tuple(each for each in found if each is not None)

    def _entry(self, name: str, path: Path) -> SpaceEntry | None:
        """A space, read again only once its file has changed: that takes long, and an open page asks every few seconds.
        None where it cannot be read: the operator's folder may hold other files."""
        try:
            seen = path.stat()
            state = seen.st_mtime_ns, seen.st_size
            kept, entry = self._entries.get(path, (None, None))
            if kept != state:
                entry = _entry_of(name, path)
                self._entries[path] = state, entry
            return entry
        except OSError:
            return None

    # Changing ---------------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        if self._writer is None:
            raise InputError("this server is read-only: start it with a token to change anything")
        return self._writer

    def ask(self, asked: SweepAsk, key: str | None) -> tuple[SweepRecord, bool]:
        """Puts a sweep into the queue, and says whether it is new. Raises InputError for a space that is not here, or
        problems that are not its."""
        files = self.spaces()
        if asked.space not in files:
            raise InputError(no_such("space", asked.space, sorted(files)))
        file: SpaceFile = load_space(str(files[asked.space]), problems=asked.problems)
        wanted = asked.model_dump(exclude={"space", "problems", "priority"})
        found = queue.submit(self._store, queue.request_for(file, **wanted), asked.priority, key)
        self._forget()
        return found

    def change(self, number: int, verb: str) -> SweepRecord:
        """Pauses, resumes, cancels or retries a sweep. Raises StoreError where that has no meaning for it now."""
        found = VERBS[verb](self._store, number)
        self._forget()
        return found

    def clear(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Ends the quarantine of devices. Raises StoreError: no such device."""
        found = device_health.clear(self._store, names)
        self._forget()
        return found

    def _forget(self) -> None:
        with self._lock:
            self._look = None


def _entry_of(name: str, path: Path) -> SpaceEntry | None:
    try:
        file = load_space(str(path))
    except AutotunerError:
        return None
    return SpaceEntry(name=name, backend=file.backend, title=file.title, problems=tuple(map(str, file.problems)))
