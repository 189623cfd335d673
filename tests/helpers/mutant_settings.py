"""The settings in which tests judge the entries of tests/mutants/expected.toml."""

from __future__ import annotations

import pytest

from tests.mutants.expectations import Backend, expectations


def settings(backend: Backend, table: str, every: int = 1, together: int | None = None) -> list[object]:
    """All settings of all entries. Of one in `every` entries one is fast; of the others of each entry, one rotates.
    With `together` that number of all the others do.

    benchmarks/gate/mutants.py judges all settings.
    """
    found: list[object] = []
    for index, group in enumerate(expectations(backend, table)):
        fast = (index // every) % len(group) if index % every == 0 else None
        for place, each in enumerate(group):
            rotating = pytest.mark.rotating(1, each.name) if together is None else pytest.mark.rotating(together)
            marks = [] if place == fast else [pytest.mark.slow, rotating]
            found.append(pytest.param(each, id=str(each), marks=marks))
    return found
