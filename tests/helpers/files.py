"""The files in tests/files: programs in C and documents in TOML that tests build, read and damage."""

import functools
import tomllib
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent.parent / "files"


def text(name: str) -> str:
    """What a file says."""
    return (FILES / name).read_text()


def refusals(name: str) -> list[list[str]]:
    """The cases of a table in refusals.toml: what may not be written somewhere, and what is said of it."""
    found: list[list[str]] = _refusals()[name]
    return found


@functools.cache
def _refusals() -> dict[str, Any]:
    return tomllib.loads(text("refusals.toml"))
