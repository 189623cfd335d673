"""The API under /api/v1: what the command line prints with `--json`, for programs that are elsewhere."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from starlette.responses import Response

from autotuner.serve.best import FORMATS, BestConfiguration, render
from autotuner.store import queries
from autotuner.tuning import standings
from autotuner.tuning.standings import Best, StudySummary
from autotuner.tuning.trial_report import TrialReport
from autotuner.values.errors import InputError
from autotuner.values.model import json_of
from autotuner.values.versions import version_of
from autotuner.views.beliefs import StudyBeliefs
from autotuner.web.api_models import (
    DeviceList,
    GateRequest,
    Health,
    Leaderboard,
    Refusal,
    StudyDevice,
    StudyList,
)
from autotuner.web.gate_service import GateBusy
from autotuner.web.reader import Snapshot
from autotuner.web.server import Server, server_of

MOST = 2**31 - 1
StudyName = Annotated[str, Path(max_length=300, description="a study's whole name")]
Number = Annotated[int, Path(ge=0, le=MOST, description="a trial's number")]
REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"model": Refusal, "description": "There is no such thing."},
    414: {"model": Refusal, "description": "The address is too long."},
    421: {"model": Refusal, "description": "The Host is not a name of this server."},
    422: {"model": Refusal, "description": "A value is none that this call takes."},
    503: {"model": Refusal, "description": "The store cannot be read."},
}
router = APIRouter(prefix="/api/v1", responses=REFUSALS)


def answer(model: BaseModel) -> Response:
    """A document as JSON, its infinite numbers as null."""
    return Response(json.dumps(json_of(model)), media_type="application/json")


def snapshot_of(request: Request, study: str) -> Snapshot:
    """The study of a path. Raises HTTPException 404."""
    return server_of(request).study(study)


@router.get("/health", response_model=Health, tags=["server"])
def health(request: Request) -> Response:
    """Whether the server is up and can read its store."""
    server = server_of(request)
    found = Health(
        version=version_of("autotuner"),
        store=server.reader.store.label,
        writes=server.access.writes,
        studies=len(server.reader.names()),
    )
    return answer(found)


@router.get("/studies", response_model=StudyList, tags=["studies"])
def studies(request: Request) -> Response:
    """Every study at a glance."""
    return answer(StudyList(studies=server_of(request).reader.studies()))


@router.get("/studies/{study}", response_model=StudySummary, tags=["studies"])
def study(request: Request, study: StudyName) -> Response:
    """One study at a glance."""
    snapshot = snapshot_of(request, study)
    return answer(snapshot.summary.model_copy(update={"running": snapshot.running}))


@router.get("/studies/{study}/leaderboard", response_model=Leaderboard, tags=["studies"])
def leaderboard(request: Request, study: StudyName, limit: Annotated[int, Query(ge=1, le=1000)] = 10) -> Response:
    """The fastest variants that passed the gate."""
    snapshot = snapshot_of(request, study)
    entries = standings.leaderboard(snapshot.store, snapshot.name, limit)
    return answer(Leaderboard(study=study, baseline=snapshot.baseline, tie=snapshot.tie, entries=entries))


@router.get("/studies/{study}/best", response_model=Best, tags=["studies"])
def best(request: Request, study: StudyName) -> Response:
    """The variant to use, with all that is known of it. 404 before anything was measured to its end."""
    return answer(_best(snapshot_of(request, study)))


def _best(snapshot: Snapshot) -> Best:
    if snapshot.best is None:
        raise HTTPException(404, f"{snapshot.name} has no variant measured to the end yet")
    return snapshot.best


@router.get("/studies/{study}/export", response_model=BestConfiguration, tags=["studies"])
def export(request: Request, study: StudyName) -> Response:
    """The best configuration with its proof, as `autotuner export` writes it."""
    snapshot = snapshot_of(request, study)
    try:
        text = render(_best(snapshot), snapshot.record)
    except InputError as error:
        raise HTTPException(404, str(error)) from None
    name = FORMATS["json"].filename
    return Response(
        text, media_type="application/json", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


@router.get("/studies/{study}/beliefs", response_model=StudyBeliefs, tags=["studies"])
async def beliefs(request: Request, study: StudyName) -> Response:
    """What the study has shown of its space. The answer takes seconds the first time."""
    server = server_of(request)
    snapshot = await run_in_threadpool(server.study, study)
    try:
        found = await server.beliefs.wait(snapshot.name, snapshot.revision.tag)
    except InputError as error:
        raise HTTPException(404, str(error)) from None
    return answer(found)


@router.get("/studies/{study}/trials/{number}", response_model=TrialReport, tags=["studies"])
def trial(request: Request, study: StudyName, number: Number) -> Response:
    """The trial's report, as `autotuner show --report` prints it."""
    from autotuner.web.views.trial import report

    snapshot = snapshot_of(request, study)
    server_of(request).require_trial(snapshot, number)
    return answer(report(snapshot, number))


@router.get("/devices", response_model=DeviceList, tags=["server"])
def devices(request: Request) -> Response:
    """The devices that workers serve, and those that the store's studies were made on."""
    server = server_of(request)
    return answer(DeviceList(devices=server.desk.devices(), models=study_devices(server)))


def study_devices(server: Server) -> tuple[StudyDevice, ...]:
    """By name, each with its studies."""
    found: dict[tuple[str, str], list[str]] = {}
    facts = {}
    for record in queries.records(server.reader.store):
        key = record.device.backend, record.device.name
        found.setdefault(key, []).append(record.name)
        facts[key] = record.device.facts
    running = {name for names in found.values() for name in names if queries.running(server.reader.store, name)}
    return tuple(
        StudyDevice(
            name=name,
            backend=backend,
            studies=tuple(studies),
            facts=facts[backend, name],
            running=tuple(each for each in studies if each in running),
        )
        for (backend, name), studies in sorted(found.items())
    )


@router.post(
    "/gate",
    response_model=TrialReport,
    tags=["gate"],
    responses={
        400: {"model": Refusal, "description": "The variant cannot be built or judged."},
        401: {"model": Refusal, "description": "The token was not shown."},
        403: {"model": Refusal, "description": "The server is read-only, or the request comes from another site."},
        413: {"model": Refusal, "description": "The body is too large."},
        429: {"model": Refusal, "description": "Another variant is being judged."},
    },
    openapi_extra={"security": [{"token": []}]},
)
async def gate(request: Request, asked: GateRequest) -> Response:
    """Puts one variant through the whole gate, and answers with its report. It takes up to some minutes."""
    server = server_of(request)
    server.access.require(request)
    try:
        return answer(await server.gate.judge(asked))
    except GateBusy as error:
        raise HTTPException(429, str(error), {"Retry-After": "10"}) from None
    except InputError as error:
        raise HTTPException(400, str(error)) from None
