"""Beliefs of a study that are found once: until something of the study changes they are read from the cache.

Of ten thousand trials they take seconds to find. A file holds those of one study, and is replaced when they are found
anew.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from autotuner.ops.op import digest_of_folder
from autotuner.store import Store, queries
from autotuner.values import config
from autotuner.values.errors import DiskFullError, InputError
from autotuner.values.files import write_atomically
from autotuner.values.variant import digest_of
from autotuner.values.versions import version_of
from autotuner.views.beliefs import StudyBeliefs, study_beliefs

DECIDE = ("views", "search", "spaces")
"""The rooms whose sources decide what is believed of given trials."""


def kept_beliefs(store: Store, study: str) -> StudyBeliefs:
    """The study's beliefs, as `study_beliefs` finds them, and with its errors."""
    state = _state(store, study)
    path = config.cache_dir() / "beliefs" / f"{digest_of([store.label, study])[:32]}.json"
    with contextlib.suppress(OSError, ValidationError):
        first, _, document = path.read_text().partition("\n")
        if first == state:
            return StudyBeliefs.model_validate_json(document)
    found = study_beliefs(store, study)
    with contextlib.suppress(OSError, DiskFullError, InputError):  # then they are found again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"{state}\n{found.model_dump_json()}")
    return found


def _state(store: Store, study: str) -> str:
    """All that the beliefs depend on: the study as it is now, and this version. The times tell a study from another one
    of its name that came to lie in the same place."""
    progress, revision = queries.progress(store, study), queries.revision(store, study)
    made = queries.study(store, study).created_at
    return digest_of([study, str(made), str(progress.last_activity), revision.tag, _version()])


@cache
def _version() -> str:
    rooms = Path(__file__).parent.parent
    return digest_of([version_of("kernel-autotuner"), *(digest_of_folder(rooms / name) for name in DECIDE)])
