"""What one server holds while it runs: its settings, the store's snapshots, beliefs, and who may change something."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import BrokenExecutor, CancelledError

from fastapi import HTTPException, Request

from autotuner.store import Store
from autotuner.values.errors import AutotunerError, InfrastructureError
from autotuner.views.beliefs import StudyBeliefs
from autotuner.web import templates
from autotuner.web.access import Access
from autotuner.web.beliefs_process import BeliefsFinder
from autotuner.web.gate_service import GateService
from autotuner.web.reader import Reader, Snapshot
from autotuner.web.settings import Settings
from autotuner.web.sweep_desk import SweepDesk

WARM_S = 2.0
"""Seconds that the server reads before it answers, at most."""
COMPARED = 2
"""Studies that one page may show."""


class Beliefs(BeliefsFinder):
    """The finder, for coroutines too."""

    async def wait(self, study: str, tag: str) -> StudyBeliefs:
        """The beliefs of a study at a revision. Raises InputError, or InfrastructureError: ask again."""
        try:
            return await asyncio.wrap_future(self.ask(study, tag))
        except (CancelledError, asyncio.CancelledError):
            raise InfrastructureError("the study has changed meanwhile: ask again") from None
        except BrokenExecutor:
            raise InfrastructureError("the process that finds beliefs was lost: ask again") from None


class Server:
    """One server."""

    def __init__(self, settings: Settings) -> None:
        """Raises StoreError where the store cannot be read."""
        self.settings = settings
        self.writer = None if settings.read_only else Store.open(settings.store, create=settings.writes)
        self.reader = Reader(Store.open(settings.store, read_only=True))
        self.desk = SweepDesk(self.reader.store, self.writer if settings.writes else None, settings.spaces)
        self.streams = 0
        """Readers of events that are connected now."""
        self.beliefs = Beliefs(settings.store)
        self.access = Access(settings)
        self.gate = GateService(settings.families)

    def close(self) -> None:
        """Ends what runs beside it."""
        self.beliefs.close()
        self.reader.store.close()
        if self.writer is not None:
            self.writer.close()

    def study(self, name: str) -> Snapshot:
        """A study as it is now. Raises HTTPException 404 where there is none, StoreError where the store is gone."""
        if name not in self.reader.names():
            raise HTTPException(404, f"there is no study {name!r} here")
        return self.reader.study(name)

    def require_trial(self, snapshot: Snapshot, number: int) -> None:
        """Raises HTTPException 404 where the study has no such trial."""
        if number not in snapshot.numbers:
            raise HTTPException(404, f"{snapshot.name} has no trial {number}")

    async def warm(self) -> None:
        """Compiles the templates and reads what was active last, so that the first reader waits for less. What takes
        long to read is read on meanwhile."""

        def read() -> None:
            with contextlib.suppress(AutotunerError):
                found = [self.reader.study(each.name) for each in self.reader.studies()[:COMPARED]]
                self.desk.look()
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
