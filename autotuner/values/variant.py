"""Variant: one point of a search space, in canonical form, with its identity."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Self

from pydantic import field_validator

from autotuner.values.model import Model

Value = int | str
"""What a parameter can be set to. Booleans are the integers 0 and 1."""


def digest_of(document: object) -> str:
    """SHA-256, in hex, of the document's canonical JSON (sorted keys, no blanks)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Variant(Model):
    """A kernel family, an implementation (IMPL) of it, and a value for each parameter that exists there.

    Two variants are the same exactly when their digests are equal; the order in which parameters were given does not
    matter, and a conditional parameter that does not exist at the point is absent, not null.
    """

    family: str
    backend: str
    impl: str
    parameters: dict[str, Value]

    @field_validator("parameters")
    @classmethod
    def _sorted(cls, parameters: dict[str, Value]) -> dict[str, Value]:
        return dict(sorted(parameters.items()))

    @cached_property
    def digest(self) -> str:
        """Identity of the variant: 64 hex digits."""
        return digest_of(self.model_dump(mode="json"))

    @classmethod
    def of(cls, family: str, backend: str, point: Mapping[str, Value]) -> Self:
        """The variant at a point of a space; `point` holds IMPL beside the other parameters."""
        rest = {name: value for name, value in point.items() if name != "IMPL"}
        return cls(family=family, backend=backend, impl=str(point["IMPL"]), parameters=rest)

    @property
    def point(self) -> dict[str, Value]:
        """The point of the space this variant stands for: IMPL and the parameters."""
        return {"IMPL": self.impl, **self.parameters}

    def __str__(self) -> str:
        return " ".join([f"IMPL={self.impl}", *(f"{k}={v}" for k, v in self.parameters.items())])
