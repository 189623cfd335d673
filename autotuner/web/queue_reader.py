"""The queue as the service reads it: one look for all readers of a moment, and the spaces that may be asked for."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple

from autotuner.jobs import outlook
from autotuner.jobs.outlook import Findings, Outlook
from autotuner.store import Store, device_health, sweeps
from autotuner.store.sweep_records import DeviceRecord
from autotuner.tuning.workbench import load_space
from autotuner.values import config
from autotuner.values.errors import AutotunerError
from autotuner.web import tags
from autotuner.web.wire import ListedSpace

FRESH_S = 0.5
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

    def __init__(self, store: Store, spaces: Path | None) -> None:
        self._store, self._folder = store, spaces
        self._progress = Findings(store)
        self._spaces: dict[Path, tuple[tuple[int, int], ListedSpace | None]] = {}
        self._look: tuple[float, Look] | None = None
        self._lock = threading.Lock()

    def look(self) -> Look:
        """The queue, not older than a moment."""
        with self._lock:
            if self._look is not None and time.monotonic() - self._look[0] < FRESH_S:
                return self._look[1]
            found, devices = outlook.outlooks(self._store, OVER, self._progress), device_health.every(self._store)
            tag = tags.of(*map(tags.of_sweep, found), *map(tags.of_device, devices))
            look = Look(tag, found, devices)
            self._look = time.monotonic(), look
            return look

    def forget(self) -> None:
        """Has the next look read anew."""
        with self._lock:
            self._look = None

    def one(self, number: int) -> Outlook | None:
        """A sweep as it is; None where there is none."""
        return outlook.outlook(self._store, number, self._progress) if sweeps.exists(self._store, number) else None

    def every(self) -> tuple[Outlook, ...]:
        """All sweeps that there ever were."""
        return outlook.outlooks(self._store, None, self._progress)

    def revision(self, number: int) -> int:
        """The number of a sweep's last event."""
        return max((each.id for each in sweeps.events(self._store, number, last=1)), default=0)

    def files(self) -> dict[str, Path]:
        """The files of the spaces that may be asked for, by name: those that are shipped, and the operator's."""
        folders = [config.spaces_dir(), *([self._folder] if self._folder is not None else [])]
        return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}

    def spaces(self) -> tuple[ListedSpace, ...]:
        """The spaces that can be read, by name."""
        found = (self._space(name, path) for name, path in sorted(self.files().items()))
        return tuple(each for each in found if each is not None)

    def _space(self, name: str, path: Path) -> ListedSpace | None:
        """A space, read again only once its file has changed: that takes long, and an open page asks every few seconds.
        None where it cannot be read: the operator's folder may hold other files."""
        try:
            seen = path.stat()
            state = seen.st_mtime_ns, seen.st_size
            kept, space = self._spaces.get(path, (None, None))
            if kept != state:
                space, self._spaces[path] = None, (state, None)
                file = load_space(str(path))
                problems = tuple(map(str, file.problems))
                space = ListedSpace(name=name, backend=file.backend, title=file.title, problems=problems)
                self._spaces[path] = state, space
            return space
        except (OSError, AutotunerError):
            return None
