"""The languages that variants are written in. Each is a `Language`, and stands in LANGUAGES."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.forge.languages.cpp import Cpp, Cuda
from autotuner.forge.languages.language import Language
from autotuner.forge.languages.python import Python
from autotuner.forge.languages.triton import Triton
from autotuner.values.errors import KernelError
from autotuner.values.validation import no_such

if TYPE_CHECKING:
    from autotuner.forge.family import Implementation

LANGUAGES: tuple[Language, ...] = (Python(), Triton(), Cuda(), Cpp())


def language_of(implementation: Implementation) -> Language:
    """The one that kernel.toml names, or else the first that takes such an implementation. Raises KernelError for a
    name that none has."""
    named = implementation.language
    found = (each for each in LANGUAGES if (each.takes(implementation) if named is None else each.name == named))
    language = next(found, None)
    if language is None:
        raise KernelError(no_such("language", str(named), [each.name for each in LANGUAGES]))
    return language
