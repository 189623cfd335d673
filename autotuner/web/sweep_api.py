"""The API of sweeps: the queue, its events as they come, and what may be asked of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from autotuner.jobs.outlook import RESTING
from autotuner.store import sweeps
from autotuner.views.sweep_tables import EVENTS, SWEEPS, sweeps_table
from autotuner.views.table import row_of
from autotuner.web import wire
from autotuner.web.api import MOST, REFUSALS, SECURED, answer, changing, refusals
from autotuner.web.server import VERBS, Server, server_of

LONGEST_WAIT_S = 60
"""Seconds that a caller may wait for a change."""
POLL_S = 0.5
STREAMS = 64
"""Readers of events at a time; each holds a connection open, and nothing else."""
BEAT_S = 15.0
"""Seconds after which a quiet stream says that it lives."""

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
    request: Request, all: Annotated[bool, Query(description="also those that are over")] = False
) -> Response:
    """The queue."""
    queue = server_of(request).queue
    found = queue.every() if all else [each for each in queue.look().sweeps if not each.sweep.state.is_over]
    return answer({"sweeps": sweeps_table(found).json()})


@changes.post("/sweeps", response_model=wire.SweepNow, status_code=201, responses=AGAIN, openapi_extra=SECURED)
async def submit_sweep(
    request: Request,
    asked: wire.NewSweep,
    idempotency_key: Annotated[str | None, Header(max_length=200, pattern=r"^[\x21-\x7e]+$")] = None,
) -> Response:
    """Asks for a sweep; a worker does it. Under the same Idempotency-Key it is made once; again it is 200."""
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


@router.get(
    "/sweeps/{number}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events, each with its number and JSON."},
        **refusals(_429="Too many readers of events."),
    },
)
async def get_sweep_events(
    request: Request,
    number: Number,
    after: Annotated[int, Query(ge=0, le=MOST, description="an event's number: those after it")] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, le=MOST)] = None,
) -> StreamingResponse:
    """What happens to a sweep, as server-sent events, until it is over or paused. A reader that comes back says with
    Last-Event-ID where it was."""
    server = server_of(request)
    await now(server, number)
    if server.streams >= STREAMS:
        raise HTTPException(429, "too many readers of events", {"Retry-After": "10"})
    start = after if last_event_id is None else last_event_id
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(server, number, start), media_type="text/event-stream", headers=headers)


async def _stream(server: Server, number: int, after: int) -> AsyncIterator[str]:
    server.streams += 1
    store, quiet = server.reader.store, 0.0
    try:
        yield "retry: 3000\n\n"
        while True:
            # The state first: what is written before it rests is then among the events.
            state = (await run_in_threadpool(sweeps.one, store, number)).state
            found = await run_in_threadpool(sweeps.events, store, number, after)
            for event in found:
                after, quiet = event.id, 0.0
                word = re.sub(r"[^\w-]", "", event.kind) or "event"
                told = json.dumps(row_of(EVENTS, event), allow_nan=False)
                yield f"id: {event.id}\nevent: {word}\ndata: {told}\n\n"
            if state in RESTING:
                yield "event: end\ndata: {}\n\n"
                return
            await asyncio.sleep(POLL_S)
            quiet += POLL_S
            if quiet >= BEAT_S:
                quiet = 0.0
                yield ": still here\n\n"
    finally:
        server.streams -= 1


def _changing(verb: str) -> Callable[[Request, Number], Coroutine[Any, Any, Response]]:
    """What answers when that is asked of a sweep."""

    async def change(request: Request, number: Number) -> Response:
        server = server_of(request)
        await now(server, number)
        await run_in_threadpool(server.change, number, verb)
        return answer(await now(server, number))

    return change


for _verb, _change in VERBS.items():
    changes.add_api_route(
        f"/sweeps/{{number}}:{_verb}",
        _changing(_verb),
        methods=["POST"],
        name=f"{_verb}_sweep",
        description=str(_change.__doc__).partition("Raises")[0].strip(),
        response_model=wire.SweepNow,
        openapi_extra=SECURED,
    )
