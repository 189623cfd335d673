"""The application: the guard around the API, the pages and their files."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from autotuner.store import device_health, sweeps
from autotuner.values.errors import AutotunerError, InputError, StoreError, StoreUnavailableError
from autotuner.values.ratio import UNCONFIRMED
from autotuner.values.sweep import State
from autotuner.values.versions import version_of
from autotuner.web import api, pages, wire
from autotuner.web.access import Private, Settings
from autotuner.web.guard import SAFE, Guard
from autotuner.web.server import Server, server_of

WORTH_PACKING, LEVEL = 1000, 6
"""Bytes of an answer that is sent packed to who takes that, and how hard it is packed."""
ABOUT = (
    "Sweeps and their results. Reading needs nothing; what changes something needs the server's token as"
    " `Authorization: Bearer TOKEN`. A number that is not finite is null."
)


def create_app(settings: Settings) -> Guard:
    """The application of a server, as ASGI. Raises StoreError where the store cannot be read."""
    server = Server(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await server.warm()
        yield
        server.close()

    app = FastAPI(
        title="autotuner",
        version=version_of("kernel-autotuner"),
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    app.state.server = server
    # What is packed tells by its length no secret to who has another site's page send requests: the cookie is strict.
    app.add_middleware(GZipMiddleware, minimum_size=WORTH_PACKING, compresslevel=LEVEL)
    if settings.private:
        app.add_middleware(Private, access=server.access)
    for router in (api.router, api.changes, api.sweep_router, api.sweep_changes, pages.router):
        app.include_router(router)
    app.mount("/static", _Files(packages=[("autotuner.web", "static")]))
    app.add_api_route("/metrics", _metrics, include_in_schema=False)
    app.add_exception_handler(AnyHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(AutotunerError, _not_done)
    return Guard(app, settings.hosts)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once. Numbers that are not finite are null, so every number may be null there."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document["components"]["schemas"]
        asked = {each.__name__ for each in wire.ASKED}
        schemas |= {name: _nullable(schema) for name, schema in schemas.items() if name not in asked}
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = document
    return app.openapi_schema


def _nullable(part: Any) -> Any:
    if isinstance(part, list):
        return [_nullable(each) for each in part]
    if not isinstance(part, dict):
        return part
    changed = {name: _nullable(value) for name, value in part.items()}
    if changed.get("type") == "number":
        changed["type"] = ["number", "null"]
    return changed


class _Files(StaticFiles):
    """The pages' files; their addresses change with their content."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        found = super().file_response(*args, **options)
        found.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return found


def _metrics(request: Request) -> Response:
    """Metrics in Prometheus' form: how far each study is, the queue, and the events that there ever were."""
    reader = server_of(request).reader
    studies, (by_state, by_kind) = reader.studies(), sweeps.counts(reader.store)
    devices = device_health.every(reader.store)
    healths = [(health, str(count)) for health, count in Counter(each.health for each in devices).items()]
    served = str(sum(each.holder is not None for each in devices))
    running = [(each.name, str(int(each.running))) for each in studies]
    trials = [(each.name, str(verdict), str(n)) for each in studies for verdict, n in each.by_verdict.items()]
    best = [each for each in studies if each.best_speedup is not None]
    speedups = [(each.name, "finals" if each.best_confirmed else UNCONFIRMED, str(each.best_speedup)) for each in best]
    last = [(each.name, str(each.last_activity.timestamp())) for each in studies]
    events = CounterMetricFamily("autotuner_events", "What happened to sweeps and devices", labels=["kind"])
    for kind, count in by_kind.items():
        events.add_metric([kind], count)
    found = (
        _gauge("study_running", "1 while a driver works on the study", running, "study"),
        _gauge("study_judged", "Variants judged", [(each.name, str(each.judged)) for each in studies], "study"),
        _gauge("study_trials", "Recorded trials by verdict, revoked ones left out", trials, "study", "verdict"),
        _gauge("study_best_speedup", "Time of the baseline over that of the best variant", speedups, "study", "by"),
        _gauge("study_last_activity_seconds", "When something was recorded last, Unix time", last, "study"),
        _gauge("sweeps", "Sweeps by state", [(str(each), str(by_state.get(each, 0))) for each in State], "state"),
        _gauge("devices", "Devices of workers by health", healths, "health"),
        _gauge("devices_served", "Devices that a living worker serves", [(served,)]),
        events,
    )
    text = generate_latest(SimpleNamespace(collect=lambda: found))  # all that is asked of a registry
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _gauge(name: str, says: str, values: Iterable[tuple[str, ...]], *labels: str) -> Metric:
    """`values`: of each its labels, then the number."""
    made = GaugeMetricFamily(f"autotuner_{name}", says, labels=labels)
    for *of, value in values:
        made.add_metric(of, float(value))
    return made


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    if not request.url.path.startswith("/api/v1/") and "text/html" in request.headers.get("accept", ""):  # a page
        return pages.refused(request, HTTPException(error.status_code, error.detail, dict(error.headers or {})))
    return JSONResponse({"error": str(error.detail)}, error.status_code, dict(error.headers or {}))


def _not_valid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _refused(request, HTTPException(422, f"{where}: {first['msg']}"))


def _not_done(request: Request, error: Exception) -> Response:
    """What one of the package's own errors is in HTTP: a question finds nothing, a change cannot be as it is asked or
    as things are now, or it is ours or the store's and may pass."""
    asks = request.method in SAFE
    if isinstance(error, StoreError):
        status = 503 if asks or isinstance(error, StoreUnavailableError) else 409
    elif isinstance(error, InputError):
        status = 404 if asks else 400
    else:
        status = 503
    return _refused(request, HTTPException(status, str(error)))
