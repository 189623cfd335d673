"""The API's description. Numbers that are not finite are null in every answer, so every number may be null there."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document.get("components", {}).get("schemas", {})
        taken = _taken(document)
        for name, schema in schemas.items():
            if name not in taken:
                schemas[name] = _nullable(schema)
        kinds = document.setdefault("components", {}).setdefault("securitySchemes", {})
        kinds["token"] = {"type": "http", "scheme": "bearer"}
        app.openapi_schema = document
    return app.openapi_schema


def _taken(document: dict[str, Any]) -> set[str]:
    """Names of the schemas that requests are made of."""
    bodies = [
        operation["requestBody"]
        for path in document["paths"].values()
        for operation in path.values()
        if isinstance(operation, dict) and "requestBody" in operation
    ]
    found: set[str] = set()
    waiting = [name for body in bodies for name in _named(body)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _named(document["components"]["schemas"][name])
    return found


def _named(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [str(part["$ref"]).rsplit("/", 1)[1]] if "$ref" in part else []
        return own + [name for value in part.values() for name in _named(value)]
    return [name for value in part for name in _named(value)] if isinstance(part, list) else []


def _nullable(part: Any) -> Any:
    if isinstance(part, list):
        return [_nullable(each) for each in part]
    if not isinstance(part, dict):
        return part
    changed = {name: _nullable(value) for name, value in part.items()}
    if changed.get("type") == "number":
        changed["type"] = ["number", "null"]
    return changed
