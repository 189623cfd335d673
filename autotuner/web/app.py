"""The application: the guard around the API, the pages and their files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from autotuner.values.errors import AutotunerError
from autotuner.values.versions import version_of
from autotuner.web import api, figures_api, metrics, pages, queue_pages, sweep_api
from autotuner.web.guard import Guard
from autotuner.web.openapi import describe
from autotuner.web.server import Server, server_of
from autotuner.web.settings import Settings

ABOUT = (
    "Sweeps and their results. Reading needs nothing; what changes something needs the server's token as"
    " `Authorization: Bearer TOKEN`. A number that is not finite is null."
)


class Application(FastAPI):
    """FastAPI with our description of the API."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return describe(self)


def create_app(settings: Settings) -> Guard:
    """The application of a server, as ASGI. Raises StoreError where the store cannot be read."""
    server = Server(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await server.warm()
        yield
        server.close()

    app = Application(
        title="autotuner",
        version=version_of("autotuner"),
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=lifespan,
    )
    app.state.server, app.state.drawn = server, pages.Drawn()
    app.include_router(api.router)
    app.include_router(figures_api.router)
    app.include_router(sweep_api.router)
    app.include_router(pages.router)
    app.include_router(queue_pages.router)
    app.mount("/static", _Files(packages=[("autotuner.web", "static")]))
    app.add_api_route("/metrics", _metrics, include_in_schema=False)
    app.add_exception_handler(AnyHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(AutotunerError, _not_readable)
    return Guard(app, settings.hosts)


class _Files(StaticFiles):
    """The pages' files; their addresses change with their content."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        found = super().file_response(*args, **options)
        found.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return found


def _metrics(request: Request) -> Response:
    server = server_of(request)
    desk = server.desk
    text = metrics.text(server.reader.studies(), desk.count_by_state(), desk.devices(), desk.events_by_kind())
    return Response(text, media_type=metrics.CONTENT_TYPE)


def _is_page(request: Request) -> bool:
    return not request.url.path.startswith("/api/v1/") and "text/html" in request.headers.get("accept", "")


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    if _is_page(request):
        return pages.refused(request, HTTPException(error.status_code, error.detail, dict(error.headers or {})))
    return JSONResponse({"error": str(error.detail)}, error.status_code, dict(error.headers or {}))


def _not_valid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _refused(request, HTTPException(422, f"{where}: {first['msg']}"))


def _not_readable(request: Request, error: Exception) -> Response:
    return _refused(request, HTTPException(503, str(error)))
