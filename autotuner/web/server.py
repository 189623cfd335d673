"""What one server holds while it runs: its settings, the store's snapshots, beliefs, and who may change something."""

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable

from fastapi import HTTPException, Request

from autotuner.jobs import outlook, queue
from autotuner.jobs.outlook import Outlook
from autotuner.store import Store, device_health, sweeps, whole_study
from autotuner.store.records import SweepRecord
from autotuner.tuning.workbench import load_space, load_spaces
from autotuner.values.errors import AutotunerError, InputError
from autotuner.values.sweep import SweepChange
from autotuner.values.validation import no_such
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.snapshot import Snapshot
from autotuner.web import templates, whole_page
from autotuner.web.access import WHO, Access, Settings
from autotuner.web.beliefs_process import BeliefsFinder
from autotuner.web.reader import QueueReader, Reader
from autotuner.web.wire import NewSweep

KEPT = 128
"""Pages and answers that are kept."""


class PageCache:
    """The pages and answers drawn last, by what they show: once for all their readers."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def once(self, key: tuple[str, ...], draw: Callable[[], str]) -> bytes:
        """That of the key."""
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = draw().encode()
            with self._lock:
                self._kept[key] = found
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return found


WARM_S = 2.0
"""Seconds that the server reads before it answers, at most."""
COMPARED = 2
"""Studies that one page may show."""

VERBS: dict[str, Callable[[Store, int, SweepChange], SweepRecord]] = {
    "pause": lambda store, number, _: queue.pause(store, number),
    "resume": lambda store, number, _: queue.resume(store, number),
    "cancel": lambda store, number, _: queue.cancel(store, number),
    "retry": queue.retry,
    "set": queue.change,
}
"""What may be asked of a sweep."""


class Server:
    """One server."""

    def __init__(self, settings: Settings) -> None:
        """Raises StoreError where the store cannot be read."""
        self.settings = settings
        self.writer = None if settings.read_only else Store.open(settings.store, create=settings.writes)
        self.reader = Reader(Store.open(settings.store, read_only=True))
        self.queue = QueueReader(self.reader, settings.spaces)
        self.beliefs = BeliefsFinder(settings.store)
        self.access = Access(settings)
        self.drawn = PageCache()

    def close(self) -> None:
        """Ends what runs beside it."""
        self.beliefs.close()
        self.reader.store.close()
        if self.writer is not None:
            self.writer.close()

    @property
    def label(self) -> str:
        """The store as a command line names it; no password is in it."""
        return self.reader.store.label

    def study(self, name: str) -> Snapshot:
        """A study as it is now. Raises HTTPException 404 where there is none, StoreError where the store is gone."""
        if name not in self.reader.names():
            raise HTTPException(404, f"there is no study {name!r} here")
        return self.reader.study(name)

    def sweep(self, number: int) -> Outlook:
        """A sweep as it is now. Raises HTTPException 404 where there is none."""
        if not sweeps.exists(self.reader.store, number):
            raise HTTPException(404, f"there is no sweep {number}")
        return outlook.outlook(self.reader.store, number)

    def require_trial(self, snapshot: Snapshot, number: int) -> None:
        """Raises HTTPException 404 where the study has no such trial."""
        if number not in snapshot.numbers:
            raise HTTPException(404, f"{snapshot.name} has no trial {number}")

    def writing(self) -> Store:
        """The store, to change something in it. Raises InputError where nobody may."""
        if self.writer is None or not self.settings.writes:
            raise InputError("this server is read-only: start it with a token to change anything")
        return self.writer

    def submit(self, asked: NewSweep, key: str | None) -> tuple[SweepRecord, bool]:
        """Puts a sweep, or a group, into the queue: its first one, and whether it is new. Raises InputError for a
        space or a study that is not here, or problems that are not its."""
        files, like = self.queue.files(), asked.like
        if asked.space not in files:
            raise InputError(no_such("space", asked.space, sorted(files)))
        if like is not None and (like.endswith(".json") or like not in self.reader.names()):  # a file is for its owner
            raise InputError(no_such("study", like, sorted(self.reader.names())))
        said = str(files[asked.space]), asked.threads, asked.problems
        spaces = load_spaces(*said, each=True) if asked.each else (load_space(*said),)
        if asked.weights:
            if asked.each or len(asked.weights) != len(spaces[0].problems):
                raise InputError("weights: give one for each problem, or leave them out, as with `each`")
            spaces = (spaces[0].model_copy(update={"objective": asked.weights}),)
        wanted = asked.model_dump(exclude={"space", "problems", "weights", "priority", "each", "threads"})
        requests = [queue.request_for(each, share=len(spaces), **wanted) for each in spaces]
        made, is_new = queue.submit(self.writing(), *requests, priority=asked.priority, key=key)
        if is_new:
            self._note("submitted", made[0].id)
        self.queue.forget()
        return made[0], is_new

    def change(self, number: int, verb: str, wanted: SweepChange) -> None:
        """Pauses, resumes, cancels, retries or changes a sweep. Raises StoreError where that has no meaning for it now,
        and InputError."""
        VERBS[verb](self.writing(), number, wanted)
        self._note(verb, number)
        self.queue.forget()

    def change_study(self, name: str, note: str | None, new: str | None) -> str:
        """Notes something of a study, and gives it another name; its name. Raises StoreError, and InputError."""
        if note is not None:
            whole_study.annotate(self.writing(), name, note)
        if new is not None and new != name:
            whole_study.rename(self.writing(), name, new)
        self._note(f"study {name} changed" + (f", now {new}" if new else ""))
        self.reader.forget()
        return new or name

    async def saved_page(self, name: str) -> tuple[Snapshot, str]:
        """A study, and its pages as one file. Waits for the beliefs, which nobody could load later."""
        snapshot = await asyncio.to_thread(self.study, name)
        believed: StudyBeliefs | str
        try:
            believed = await self.beliefs.wait(snapshot.name, snapshot.revision.tag)
        except InputError as error:
            believed = str(error)
        return snapshot, await asyncio.to_thread(whole_page.render, snapshot, self.label, believed)

    @property
    def copies(self) -> dict[str, str]:
        """By label the stores that studies may be copied into."""
        return {Store.label_of(each): each for each in self.settings.copies}

    def copy_study(self, name: str, to: str) -> None:
        """Copies a study into a store that the server was started with. Raises InputError, and StoreError."""
        self.writing()
        if to not in self.copies:
            raise InputError(no_such("store of --copy-to", to, sorted(self.copies)))
        data = whole_study.data_of(self.reader.store, name)
        with Store.open(self.copies[to]) as target:
            whole_study.add(target, data)
        self._note(f"study {name} copied to {to}")

    def delete_study(self, name: str) -> None:
        """Deletes a study with all its rows. Raises StoreError."""
        whole_study.remove(self.writing(), name)
        self._note(f"study {name} deleted")
        self.reader.forget()

    def clear(self, names: tuple[str, ...]) -> None:
        """Ends the quarantine of devices. Raises StoreError: no such device."""
        device_health.clear(self.writing(), names)
        self._note(f"{', '.join(names)} cleared")
        self.queue.forget()

    def _note(self, what: str, sweep: int | None = None) -> None:
        """Who has asked for a change, where users have names."""
        if self.settings.users:
            sweeps.note(self.writing(), sweep, "by_user", f"{what} by {WHO.get()}", {"user": WHO.get()})

    async def warm(self) -> None:
        """Compiles the templates and reads what was active last, so that the first reader waits for less. What takes
        long to read is read on meanwhile."""

        def read() -> None:
            with contextlib.suppress(AutotunerError):
                found = [self.reader.study(each.name) for each in self.reader.studies()[:COMPARED]]
                self.queue.look()
                for each in found[:1]:
                    each.read_ahead()
                for each in found[1:]:
                    _ = each.trials

        templates.compile_all()
        reads = threading.Thread(target=read, name="warm", daemon=True)
        reads.start()
        await asyncio.to_thread(reads.join, WARM_S)


def server_of(request: Request) -> Server:
    """The server of a request."""
    found = request.app.state.server
    assert isinstance(found, Server)
    return found
