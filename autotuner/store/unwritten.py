"""Outcomes that a store could not take: they lie in files of the cache until it can.

A store may be locked, full or gone for longer than the process that judged lives. The next driver of the study on this
host records what it finds here.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from autotuner.values import config
from autotuner.values.errors import DiskFullError
from autotuner.values.files import write_atomically
from autotuner.values.model import Model
from autotuner.values.outcome import Outcome
from autotuner.values.variant import digest_of


class Unwritten(Model):
    """An outcome that is in no store yet."""

    study: str
    session: int
    session_began: datetime | None = Field(
        description="tells it from one with its number in a store that was made anew or restored"
    )
    number: int
    outcome: Outcome


def _folder(store: str, study: str) -> Path:
    return config.cache_dir() / "unwritten" / digest_of([store, study])[:32]


def keep(store: str, each: Unwritten) -> None:
    """Keeps it. A disk that is full keeps nothing: the trial is judged again then, should this process die."""
    folder = _folder(store, each.study)
    with contextlib.suppress(OSError, DiskFullError):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{each.number}.json", each.model_dump_json())


def drop(store: str, study: str, number: int) -> None:
    """It is in the store now."""
    with contextlib.suppress(OSError):
        (_folder(store, study) / f"{number}.json").unlink()


def of(store: str, study: str) -> Iterator[Unwritten]:
    """What is kept for a study; what cannot be read is left out."""
    for path in sorted(_folder(store, study).glob("*.json")):
        with contextlib.suppress(OSError, ValidationError):
            yield Unwritten.model_validate_json(path.read_text())
