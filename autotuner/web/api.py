"""The API under /api/v1, for programs that are elsewhere: studies, their figures and devices, then the queue. The name
of a function here is the call's operation id."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from autotuner.jobs import queue
from autotuner.jobs.outlook import outlooks
from autotuner.serve import bundle
from autotuner.serve.best import FORMATS, BestConfiguration, export_json
from autotuner.store import device_health, sweeps
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.standings import Best
from autotuner.tuning.trial_report import TrialReport
from autotuner.values.model import json_of
from autotuner.values.sweep import SweepChange
from autotuner.values.versions import version_of
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.figure_tables import COMPARISON, FIGURES, PACE, comparison
from autotuner.views.leaderboard import leaderboard, leaderboard_columns
from autotuner.views.snapshot import Snapshot
from autotuner.views.studies_table import FINALS, studies_table, study_columns
from autotuner.views.sweep_tables import SWEEPS, devices_table, events_table, sweeps_table
from autotuner.views.table import row_of
from autotuner.views.trial_words import report_of
from autotuner.views.trials_table import trials_table
from autotuner.web import wire
from autotuner.web.server import Server, server_of

MOST = 2**31 - 1
StudyName = Annotated[str, Path(max_length=300, description="a study's whole name")]
Queried = Annotated[str, Query(max_length=300, description="a study's whole name")]
Number = Annotated[int, Path(ge=0, le=MOST, description="a trial's number")]


def refusals(**words: str) -> dict[int | str, dict[str, Any]]:
    """How the description of the API says which refusals there are: each by its status, as `_404`."""
    return {int(status[1:]): {"model": wire.Refusal, "description": said} for status, said in words.items()}


REFUSALS = refusals(
    _404="There is no such thing.",
    _414="The address is too long.",
    _421="The Host is not a name of this server.",
    _422="A value is none that this call takes.",
    _503="The store cannot be read.",
)


class TokenFirst(APIRoute):
    """A call that changes something: who makes it must show the token before anything looks at what was sent."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The call, after the token."""
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            server_of(request).access.require(request)
            return await handle(request)

        return shown


def changing(tag: str) -> APIRouter:
    """A router of calls that change something."""
    said = refusals(
        _400="It cannot be done as asked.",
        _401="The token was not shown.",
        _403="The server is read-only, or the request comes from another site.",
        _409="It has no meaning for what is there now.",
        _413="The body is too large.",
    )
    return APIRouter(prefix="/api/v1", responses={**REFUSALS, **said}, tags=[tag], route_class=TokenFirst)


SECURED: dict[str, Any] = {"security": [{"token": []}]}
"""How the description says that a call needs the token."""
router = APIRouter(prefix="/api/v1", responses=REFUSALS, tags=["studies"])
changes = changing("server")


def answer(found: BaseModel | dict[str, Any]) -> Response:
    """A document as JSON, its infinite numbers as null."""
    return Response(text_of(json_of(found) if isinstance(found, BaseModel) else found), media_type="application/json")


def text_of(document: dict[str, Any]) -> str:
    """The text of an answer."""
    return json.dumps(document, allow_nan=False)


def snapshot_of(request: Request, study: StudyName) -> Snapshot:
    """The study of a path. Raises HTTPException 404."""
    return server_of(request).study(study)


OfStudy = Annotated[Snapshot, Depends(snapshot_of)]


@router.get("/health", response_model=wire.Health, tags=["server"])
def get_health(request: Request) -> Response:
    """Whether the server is up and can read its store."""
    server = server_of(request)
    studies, label = len(server.reader.names()), server.label
    version = version_of("kernel-autotuner")
    return answer(wire.Health(version=version, store=label, writes=server.settings.writes, studies=studies))


@router.get("/studies", response_model=wire.StudyList)
def list_studies(request: Request) -> Response:
    """Every study at a glance."""
    return answer({"studies": studies_table(server_of(request).reader.studies()).json()})


@router.get("/studies/{study}", response_model=wire.Study)
def get_study(of: OfStudy) -> Response:
    """One study at a glance."""
    now = of.summary.model_copy(update={"running": of.running})
    return answer(row_of(study_columns(), now))


@changes.patch("/studies/{study}", response_model=wire.Study, openapi_extra=SECURED, tags=["studies"])
def change_study(request: Request, study: StudyName, asked: wire.StudyChange) -> Response:
    """Renames a study, or notes something of it; `""` takes a note away."""
    snapshot_of(request, study)
    return get_study(snapshot_of(request, server_of(request).change_study(study, asked.note, asked.name)))


@changes.post("/studies/{study}:copy", response_model=wire.StudyCopy, openapi_extra=SECURED, tags=["studies"])
def copy_study(request: Request, study: StudyName, asked: wire.StudyCopy) -> Response:
    """Copies a study into another store."""
    snapshot_of(request, study)
    server_of(request).copy_study(study, asked.to)
    return answer(asked)


@changes.delete("/studies/{study}", status_code=204, openapi_extra=SECURED, tags=["studies"])
def delete_study(request: Request, study: StudyName) -> None:
    """Deletes a study with its trials, finals and times, which nothing brings back."""
    snapshot_of(request, study)
    server_of(request).delete_study(study)


@router.get("/studies/{study}/leaderboard", response_model=wire.Leaderboard)
def get_leaderboard(request: Request, of: OfStudy, limit: Annotated[int, Query(ge=1, le=1000)] = 10) -> Response:
    """The fastest variants that passed the gate."""

    def draw() -> str:
        variants = leaderboard(standings.leaderboard(of.store, of.name, limit), of.record).json()
        return text_of({"study": of.name, "baseline": of.baseline, "tie": of.tie, "variants": variants})

    key = "leaderboard", of.name, str(limit), of.revision.tag
    return Response(server_of(request).drawn.once(key, draw), media_type="application/json")


@router.get("/studies/{study}/best", response_model=wire.BestVariant)
def get_best_variant(of: OfStudy) -> Response:
    """The variant to use. 404 before anything was measured to its end."""
    best = _best(of)
    variant, finals = row_of(leaderboard_columns(), best.entry), best.finals and row_of(FINALS, best.finals)
    recorded_at = best.record.recorded_at.isoformat()
    return answer({"study": of.name, "variant": variant, "recorded_at": recorded_at, "finals": finals})


def _best(snapshot: Snapshot) -> Best:
    if snapshot.best is None:
        raise HTTPException(404, f"{snapshot.name} has no variant measured to the end yet")
    return snapshot.best


@router.get("/studies/{study}/export", response_model=BestConfiguration)
def export_study(of: OfStudy) -> Response:
    """The best configuration with its proof, as `autotuner export` writes it."""
    text = export_json(_best(of), of.record)
    name = FORMATS["json"].filename
    return Response(
        text, media_type="application/json", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


@router.get("/studies/{study}/bundle", response_class=Response)
async def get_bundle(request: Request, study: StudyName) -> Response:
    """The study as one file, as `autotuner bundle` writes it; `autotuner study copy` brings it into a store."""
    of, page = await server_of(request).saved_page(study)

    def write() -> bytes:
        with TemporaryDirectory() as folder:
            target = FilePath(folder) / "study.tar.gz"
            bundle.write(of.store, of.name, target, page)
            return target.read_bytes()

    found = await run_in_threadpool(write)
    headers = {"Content-Disposition": 'attachment; filename="study.tar.gz"'}
    return Response(found, media_type="application/gzip", headers=headers)


@router.get("/studies/{study}/beliefs", response_model=StudyBeliefs)
async def get_beliefs(request: Request, study: StudyName) -> Response:
    """What the study has shown of its space. The answer takes seconds the first time."""
    server = server_of(request)
    snapshot = await run_in_threadpool(server.study, study)
    return answer(await server.beliefs.wait(snapshot.name, snapshot.revision.tag))


@router.get("/studies/{study}/trials", response_model=wire.TrialList)
def list_trials(
    of: OfStudy,
    after: Annotated[int, Query(ge=-1, le=MOST, description="a trial's number: those after it")] = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The trials in lines, by number, as `autotuner trials` lists them."""
    found = sorted((each for each in of.trials if each.number > after), key=lambda each: each.number)[:limit]
    lines = trials_table(found, of.confirmed, of.record).json()
    return answer({"study": of.name, "count": len(of.trials), "trials": lines})


@router.get("/studies/{study}/trials/{number}", response_model=TrialReport)
def get_trial(request: Request, of: OfStudy, number: Number) -> Response:
    """The trial's report, as it is in `autotuner show --json`."""
    server_of(request).require_trial(of, number)
    return answer(report_of(of.store, of.name, number))


@router.get("/studies/{study}/history", response_model=wire.History)
def get_history(of: OfStudy) -> Response:
    """Each trial that was the best until then."""
    return answer({"study": of.name, "improvements": FIGURES["history"](of).json()})


@router.get("/studies/{study}/costs", response_model=wire.Costs)
def get_costs(of: OfStudy) -> Response:
    """What its trials cost by verdict and stage, and how fast it is judged."""
    pace = of.costs.pace and row_of(PACE, of.costs.pace)
    return answer({"study": of.name, "pace": pace, "by_verdict": FIGURES["costs"](of).json()})


@router.get("/compare", response_model=wire.Comparison)
def compare_studies(request: Request, first: Queried, second: Queried) -> Response:
    """Two studies, by the variants that both have judged."""
    snapshot_of(request, second)
    store = snapshot_of(request, first).store
    return answer({"first": first, "second": second, **row_of(COMPARISON, comparison(store, first, second))})


@router.get("/devices", response_model=wire.DeviceList, tags=["server"])
def list_devices(request: Request) -> Response:
    """The devices that workers serve."""
    return answer({"devices": devices_table(device_health.every(server_of(request).reader.store)).json()})


@changes.post("/devices:clear", response_model=wire.DeviceList, openapi_extra=SECURED)
def clear_devices(request: Request, asked: wire.ClearRequest) -> Response:
    """Ends the quarantine of devices: they get sweeps again."""
    server_of(request).clear(asked.names)
    return list_devices(request)


# The queue ------------------------------------------------------------------------------------------------------------


LONGEST_WAIT_S = 60
"""Seconds that a caller may wait for a change."""
POLL_S = 0.5

SweepNumber = Annotated[int, Path(ge=1, le=MOST, description="a sweep's number")]
AGAIN: dict[int | str, dict[str, Any]] = {
    200: {"model": wire.SweepNow, "description": "It was asked for before under the same Idempotency-Key."}
}
sweep_router = APIRouter(prefix="/api/v1", responses=REFUSALS, tags=["sweeps"])
sweep_changes = changing("sweeps")


async def now(server: Server, number: int) -> dict[str, Any]:
    """A sweep as it is now. Raises HTTPException 404."""

    def read() -> dict[str, Any]:
        # The revision first: whoever waits for a later one misses nothing that happens before the rest is read.
        revision = server.queue.revision(number)
        return {**row_of(SWEEPS, server.sweep(number)), "revision": revision}

    return await run_in_threadpool(read)


@sweep_router.get("/spaces", response_model=wire.SpaceList)
def list_spaces(request: Request) -> Response:
    """The spaces that a sweep can be asked for."""
    return answer(wire.SpaceList(spaces=server_of(request).queue.spaces()))


@sweep_router.get("/sweeps", response_model=wire.SweepList)
def list_sweeps(
    request: Request,
    all: Annotated[bool, Query(description="also those that are over")] = False,
    skip: Annotated[int, Query(ge=0, le=MOST, description="how many of the first are left out")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The queue."""
    server = server_of(request)
    open_ones = (each for each in server.queue.look().sweeps if not each.sweep.state.is_over)
    found = outlooks(server.reader.store, None) if all else (*open_ones,)
    return answer({"count": len(found), "sweeps": sweeps_table(found[skip : skip + limit]).json()})


@sweep_changes.post("/sweeps", response_model=wire.SweepNow, status_code=201, responses=AGAIN, openapi_extra=SECURED)
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


@sweep_router.get("/sweeps/{number}", response_model=wire.SweepNow)
async def get_sweep(
    request: Request,
    number: SweepNumber,
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


@sweep_router.get("/sweeps/{number}/events", response_model=wire.EventList)
def list_sweep_events(
    request: Request,
    number: SweepNumber,
    after: Annotated[int, Query(ge=0, le=MOST, description="an event's number: those after it")] = 0,
) -> Response:
    """What has happened to a sweep, the oldest first; `GET /sweeps/N` with `wait` answers once there is more."""
    server = server_of(request)
    server.sweep(number)
    return answer({"events": events_table(sweeps.events(server.reader.store, number, after)).json()})


async def _changed(request: Request, number: int, verb: str, wanted: SweepChange | None = None) -> Response:
    server = server_of(request)
    await now(server, number)
    await run_in_threadpool(server.change, number, verb, wanted or SweepChange())
    return answer(await now(server, number))


@sweep_changes.patch("/sweeps/{number}", response_model=wire.SweepNow, openapi_extra=SECURED)
async def change_sweep(request: Request, number: SweepNumber, asked: wire.ChangeRequest) -> Response:
    """Gives a sweep that is not over another budget or priority; a worker that has it goes on with that."""
    return await _changed(request, number, "set", asked)


@sweep_changes.post("/sweeps/{number}:retry", response_model=wire.SweepNow, openapi_extra=SECURED)
async def retry_sweep(request: Request, number: SweepNumber, asked: wire.ChangeRequest | None = None) -> Response:
    """Puts a sweep that is over back into the queue, with the budget it has left, or the one in the body; where none
    is left `detail` says so."""
    return await _changed(request, number, "retry", asked)


def _changing(verb: str) -> Callable[[Request, SweepNumber], Coroutine[Any, Any, Response]]:
    """What answers when that is asked of a sweep."""

    async def change(request: Request, number: SweepNumber) -> Response:
        return await _changed(request, number, verb)

    return change


for _verb in ("pause", "resume", "cancel"):
    sweep_changes.add_api_route(
        f"/sweeps/{{number}}:{_verb}",
        _changing(_verb),
        methods=["POST"],
        name=f"{_verb}_sweep",
        description=str(getattr(queue, _verb).__doc__).partition("Raises")[0].strip(),
        response_model=wire.SweepNow,
        openapi_extra=SECURED,
    )
