"""Whatever a command is given, it ends with exit code 0, 1 or 2 and a line. A hundred cases; `make proof PART=hostile`
has many more."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.helpers.hostile import Case, Ended, Recipe, family, faults, made, recipes, run, stores


@given(recipes())
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_bad_input_is_one_line(recipe: Recipe) -> None:
    case = made(recipe)
    ended = run(case)
    assert not faults(ended), (case.words, ended)


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (Ended(None, "", "Traceback (most recent call last):\n", 0.1), "a traceback"),
        (Ended(2, "", "autotuner: one\ntwo\n", 0.1), "2 lines of error"),
        (Ended(0, "\x1b[31m", "", 0.1), "a character that a terminal obeys"),
        (Ended(0, "", "", 11.0), "11.0 s of CPU time"),
    ],
)
def test_what_is_looked_for(ended: Ended, fault: str) -> None:
    assert fault in faults(ended)


def test_a_whole_file_and_a_whole_store_are_no_error() -> None:
    shown = run(Case(family(), ("space", "show", "space.toml")))
    assert (shown.code, faults(shown)) == (0, [])
    assert "valid here" in shown.out
    for store, driven in zip(stores(), (False, True), strict=True):
        asked = run(Case({"studies.db": store}, ("leaderboard",), drives=driven))
        assert (asked.code, faults(asked)) == (0, [])
        assert "rank" in asked.out
