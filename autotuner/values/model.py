"""The base of every noun that crosses a module border."""

import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, JsonValue


class Model(BaseModel):
    """A frozen value: fields cannot be set, unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    @classmethod
    def taken_from(cls, source: object, **more: Any) -> Self:
        """What has the attributes of another that fields are named as, and more fields."""
        shared = {name: getattr(source, name) for name in cls.model_fields if hasattr(source, name)}
        return cls.model_validate(shared | more)


def json_of(model: BaseModel) -> dict[str, JsonValue]:
    """A model as JSON-ready data, with infinite and missing numbers as null."""
    document: dict[str, JsonValue] = json.loads(model.model_dump_json(), parse_constant=lambda _: None)
    return document
