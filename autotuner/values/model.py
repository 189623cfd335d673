"""The base of every noun that crosses a module border."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, JsonValue


class Model(BaseModel):
    """A frozen value: fields cannot be set, unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


def json_of(model: BaseModel) -> dict[str, JsonValue]:
    """A model as JSON-ready data, with infinite and missing numbers as null."""
    document: dict[str, JsonValue] = json.loads(model.model_dump_json(), parse_constant=lambda _: None)
    return document
