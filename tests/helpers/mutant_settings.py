"""The settings in which tests judge the entries of tests/mutants/expected.toml."""

from __future__ import annotations

import pytest

from tests.mutants.expectations import Backend, expectations

SECOND = 2
"""Settings that run of entries of which another setting is judged in every run."""


def settings(backend: Backend, table: str, every: int = 1, together: int | None = None) -> list[object]:
    """All settings of all entries. Of one in `every` entries one is fast, and of the others of all of these entries
    SECOND are drawn; of the settings of each other entry, one is. With `together` that number of all the others are.

    benchmarks/gate/mutants.py judges all settings.
    """
    found: list[object] = []
    for index, group in enumerate(expectations(backend, table)):
        fast = (index // every) % len(group) if index % every == 0 else None
        if together is not None:
            sampled = pytest.mark.sampled(together)
        elif fast is not None:  # judged in every run already
            sampled = pytest.mark.sampled(SECOND, "second settings")
        else:
            sampled = pytest.mark.sampled(1, group[0].name)
        for place, each in enumerate(group):
            marks = [] if place == fast else [pytest.mark.slow, sampled]
            found.append(pytest.param(each, id=str(each), marks=marks))
    return found
