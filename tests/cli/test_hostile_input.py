"""Whatever a command is given, it ends with exit code 0, 1 or 2 and a line. Twenty cases; `make proof PART=hostile`
has many more."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.helpers import hostile_commands
from tests.helpers.hostile import Case, Ended, Recipe, family, faults, made, recipes, run, stores


@given(recipes())
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
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
        (Ended(0, "", "", 0.1, 2 * 10**9), "2.0 GB"),
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


@pytest.mark.parametrize("draw", range(3))
@pytest.mark.parametrize(
    "line", ["serve", "serve --read-only", "serve --name", "worker", "worker --idle-exit --", "sweep logs -f --every"]
)
def test_a_command_that_goes_on_is_ended(line: str, draw: int) -> None:
    ended = run(Case({}, hostile_commands.ended(tuple(line.split()), draw)))
    assert (ended.code, faults(ended)) == (2, [])


def test_every_command_that_asks_a_store_is_asked() -> None:
    lines = [line.split() for line in hostile_commands.questions()]
    for command in hostile_commands.commands():
        first = len(command.words)
        assert not command.asks_a_store or any(tuple(line[:first]) == command.words for line in lines), command


def test_without_a_table_a_package_is_refused_in_one_line() -> None:
    _, driven = stores()
    ended = run(Case({"studies.db": driven}, ("export", "--estimates", "--format", "package")))
    assert (ended.code, faults(ended)) == (2, [])
    assert "does not say the device's" in ended.err


PAGES = "export --format html"


@pytest.mark.parametrize(
    ("damage", "drives", "lines"),
    [
        ("UPDATE at_block SET variant_us = 'text'", False, ("finals --aa", PAGES, "export", "show 0", "leaderboard")),
        (
            "UPDATE at_parameter SET number = 12345 WHERE word IS NULL",
            False,
            ("explain", PAGES, "status --show history", "show 0"),
        ),
        ("UPDATE trial_params SET distribution_json = '{}'", True, ("status",)),
        ("UPDATE trial_params SET distribution_json = 'true' || distribution_json", True, ("status",)),
        ("UPDATE trial_params SET distribution_json = replace(distribution_json, 'Cat', 'Dog')", True, ("status",)),
    ],
)
def test_what_once_ended_in_a_traceback_is_one_line(
    tmp_path: Path, damage: str, drives: bool, lines: tuple[str, ...]
) -> None:
    path = tmp_path / "studies.db"
    path.write_bytes(stores()[1])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(damage).rowcount > 0
        connection.commit()
    for line in lines:
        ended = run(Case({"studies.db": path.read_bytes()}, tuple(line.split()), drives))
        assert not faults(ended), (line, ended)
