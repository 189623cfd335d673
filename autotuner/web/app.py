"""The application: the guard around the API, the pages and their files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from autotuner.store import device_health, sweeps
from autotuner.values.errors import AutotunerError, InputError, StoreError, StoreUnavailableError
from autotuner.values.versions import version_of
from autotuner.web import api, metrics, pages, queue_pages, sweep_api, wire
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
    app.include_router(api.router)
    app.include_router(api.changes)
    app.include_router(sweep_api.router)
    app.include_router(sweep_api.changes)
    app.include_router(pages.router)
    app.include_router(queue_pages.router)
    app.mount("/static", _Files(packages=[("autotuner.web", "static")]))
    app.add_api_route("/metrics", _metrics, include_in_schema=False)
    app.add_exception_handler(AnyHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(AutotunerError, _not_done)
    return Guard(app, settings.hosts)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once. Numbers that are not finite are null in answers, so every number may be null
    there."""
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
    server = server_of(request)
    store = server.reader.store
    by_state, by_kind = sweeps.count_by_state(store), sweeps.events_by_kind(store)
    text = metrics.text(server.reader.studies(), by_state, device_health.every(store), by_kind)
    return Response(text, media_type=metrics.CONTENT_TYPE)


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
