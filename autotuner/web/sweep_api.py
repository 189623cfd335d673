"""The API of sweeps: the queue, what has happened, and what may be asked of it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from autotuner.jobs import queue
from autotuner.store import sweeps
from autotuner.values.sweep import SweepChange
from autotuner.views.sweep_tables import SWEEPS, events_table, sweeps_table
from autotuner.views.table import row_of
from autotuner.web import wire
from autotuner.web.api import MOST, REFUSALS, SECURED, answer, changing
from autotuner.web.server import Server, server_of

LONGEST_WAIT_S = 60
"""Seconds that a caller may wait for a change."""
POLL_S = 0.5

Number = Annotated[int, Path(ge=1, le=MOST, description="a sweep's number")]
AGAIN: dict[int | str, dict[str, Any]] = {
    200: {"model": wire.SweepNow, "description": "It was asked for before under the same Idempotency-Key."}
}
router = APIRouter(prefix="/api/v1", responses=REFUSALS, tags=["sweeps"])
changes = changing("sweeps")


async def now(server: Server, number: int) -> dict[str, Any]:
    """A sweep as it is now. Raises HTTPException 404."""

    def read() -> dict[str, Any]:
        # The revision first: whoever waits for a later one misses nothing that happens before the rest is read.
        revision, found = server.queue.revision(number), server.queue.one(number)
        if found is None:
            raise HTTPException(404, f"there is no sweep {number}")
        return {**row_of(SWEEPS, found), "revision": revision}

    return await run_in_threadpool(read)


@router.get("/spaces", response_model=wire.SpaceList)
def list_spaces(request: Request) -> Response:
    """The spaces that a sweep can be asked for."""
    return answer(wire.SpaceList(spaces=server_of(request).queue.spaces()))


@router.get("/sweeps", response_model=wire.SweepList)
def list_sweeps(
    request: Request,
    all: Annotated[bool, Query(description="also those that are over")] = False,
    skip: Annotated[int, Query(ge=0, le=MOST, description="how many of the first are left out")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The queue."""
    queue = server_of(request).queue
    found = queue.every() if all else [each for each in queue.look().sweeps if not each.sweep.state.is_over]
    return answer({"count": len(found), "sweeps": sweeps_table(found[skip : skip + limit]).json()})


@changes.post("/sweeps", response_model=wire.SweepNow, status_code=201, responses=AGAIN, openapi_extra=SECURED)
async def submit_sweep(
    request: Request,
    asked: wire.NewSweep,
    idempotency_key: Annotated[str | None, Header(max_length=200, pattern=r"^[\x21-\x7e]+$")] = None,
) -> Response:
    """Asks for a sweep; a worker does it. Under the same Idempotency-Key it is made once; again it is 200. Of a group
    the answer is the first."""
    server = server_of(request)
    made, is_new = await run_in_threadpool(server.submit, asked, idempotency_key)
    found = answer(await now(server, made.id))
    found.status_code = 201 if is_new else 200
    found.headers["Location"] = f"/api/v1/sweeps/{made.id}"
    return found


@router.get("/sweeps/{number}", response_model=wire.SweepNow)
async def get_sweep(
    request: Request,
    number: Number,
    wait: Annotated[int, Query(ge=0, le=LONGEST_WAIT_S, description="seconds to wait for a change")] = 0,
    since: Annotated[int | None, Query(ge=0, le=MOST, description="a revision: wait for one after it")] = None,
) -> Response:
    """One sweep; with `wait`, once something has happened to it after `since`, or after that many seconds."""
    server = server_of(request)
    found = await now(server, number)
    after = found["revision"] if since is None else since
    if wait and found["revision"] <= after:
        await _wait(request, number, after, wait)
        found = await now(server, number)
    return answer(found)


async def _wait(request: Request, number: int, after: int, wait: float) -> None:
    """Waits for a later revision of a sweep, that many seconds at most. Only that is looked up meanwhile: the outlook
    takes much longer to find."""
    clock, queue = asyncio.get_running_loop().time, server_of(request).queue
    until = clock() + wait
    while clock() < until and not await request.is_disconnected():
        await asyncio.sleep(POLL_S)
        if await run_in_threadpool(queue.revision, number) > after:
            return


@router.get("/sweeps/{number}/events", response_model=wire.EventList)
def list_sweep_events(
    request: Request,
    number: Number,
    after: Annotated[int, Query(ge=0, le=MOST, description="an event's number: those after it")] = 0,
) -> Response:
    """What has happened to a sweep, the oldest first; `GET /sweeps/N` with `wait` answers once there is more."""
    store = server_of(request).reader.store
    if not sweeps.exists(store, number):
        raise HTTPException(404, f"there is no sweep {number}")
    return answer({"events": events_table(sweeps.events(store, number, after)).json()})


async def _changed(request: Request, number: int, verb: str, wanted: SweepChange | None = None) -> Response:
    server = server_of(request)
    await now(server, number)
    await run_in_threadpool(server.change, number, verb, wanted or SweepChange())
    return answer(await now(server, number))


@changes.patch("/sweeps/{number}", response_model=wire.SweepNow, openapi_extra=SECURED)
async def change_sweep(request: Request, number: Number, asked: wire.ChangeRequest) -> Response:
    """Gives a sweep that is not over another budget or priority; a worker that has it goes on with that."""
    return await _changed(request, number, "set", asked)


@changes.post("/sweeps/{number}:retry", response_model=wire.SweepNow, openapi_extra=SECURED)
async def retry_sweep(request: Request, number: Number, asked: wire.ChangeRequest | None = None) -> Response:
    """Puts a sweep that is over back into the queue, with the budget it has left, or the one in the body; where none
    is left `detail` says so."""
    return await _changed(request, number, "retry", asked)


def _changing(verb: str) -> Callable[[Request, Number], Coroutine[Any, Any, Response]]:
    """What answers when that is asked of a sweep."""

    async def change(request: Request, number: Number) -> Response:
        return await _changed(request, number, verb)

    return change


for _verb in ("pause", "resume", "cancel"):
    changes.add_api_route(
        f"/sweeps/{{number}}:{_verb}",
        _changing(_verb),
        methods=["POST"],
        name=f"{_verb}_sweep",
        description=str(getattr(queue, _verb).__doc__).partition("Raises")[0].strip(),
        response_model=wire.SweepNow,
        openapi_extra=SECURED,
    )
