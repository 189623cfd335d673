"""The API of figures: a study's trials in lines, what it found when, what it cost and covered, and two compared."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from starlette.responses import Response

from autotuner.store import figures
from autotuner.store.figures import Costs
from autotuner.tuning.covered import Coverage
from autotuner.values.errors import InputError
from autotuner.views.trial_lines import trial_lines
from autotuner.web.api import MOST, REFUSALS, StudyName, answer, snapshot_of
from autotuner.web.api_models import Baselines, ComparedStudies, History, TrialList

Queried = Annotated[str, Query(max_length=300, description="a study's whole name")]
router = APIRouter(prefix="/api/v1", responses=REFUSALS, tags=["studies"])


@router.get("/studies/{study}/trials", response_model=TrialList)
def trials(
    request: Request,
    study: StudyName,
    after: Annotated[int, Query(ge=-1, le=MOST, description="a trial's number: those after it")] = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The trials in lines, by number, as `autotuner trials` lists them."""
    snapshot = snapshot_of(request, study)
    lines = snapshot.once("lines", lambda: trial_lines(snapshot.store, snapshot.name))
    found = [each for each in lines if each.number > after]
    return answer(TrialList(study=study, count=len(lines), trials=tuple(found[:limit])))


@router.get("/studies/{study}/history", response_model=History)
def history(request: Request, study: StudyName) -> Response:
    """Each trial that was the best until then."""
    snapshot = snapshot_of(request, study)
    return answer(History(study=study, improvements=figures.history(snapshot.store, snapshot.name)))


@router.get("/studies/{study}/costs", response_model=Costs)
def costs(request: Request, study: StudyName) -> Response:
    """What its trials cost by verdict and stage, and how fast it is judged."""
    return answer(snapshot_of(request, study).costs)


@router.get("/studies/{study}/coverage", response_model=Coverage)
def coverage(request: Request, study: StudyName) -> Response:
    """How much of its space was judged, and how often each value. The first answer takes some seconds."""
    try:
        return answer(snapshot_of(request, study).coverage)
    except InputError as error:
        raise HTTPException(404, str(error)) from None


@router.get("/studies/{study}/baselines", response_model=Baselines)
def baselines(request: Request, study: StudyName) -> Response:
    """What the baselines took at each start of a driver."""
    return answer(Baselines(study=study, baselines=snapshot_of(request, study).baselines))


@router.get("/compare", response_model=ComparedStudies)
def compare(request: Request, first: Queried, second: Queried) -> Response:
    """Two studies, by the variants that both have judged."""
    one, other = snapshot_of(request, first), snapshot_of(request, second)
    found = figures.comparison(one.store, one.name, other.name)
    return answer(ComparedStudies(first=first, second=second, **dict(found)))
