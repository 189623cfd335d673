"""The languages that variants are written in. Each is a module with one `Language`, and stands in LANGUAGES."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.forge.languages.language import Cpp, Language
from autotuner.forge.languages.python import Python
from autotuner.forge.languages.triton import Triton

if TYPE_CHECKING:
    from autotuner.forge.family import Implementation

LANGUAGES: tuple[Language, ...] = (Python(), Triton(), Cpp())


def language_of(implementation: Implementation) -> Language:
    """The one that takes such an implementation."""
    return next(each for each in LANGUAGES if each.takes(implementation))
