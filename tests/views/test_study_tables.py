"""What the command line shows of search and finals: ties as ties, and the biased estimate apart."""

from pathlib import Path

import pytest
from rich.console import RenderableType

from autotuner.store import FinalsRecord, Store, queries
from autotuner.tuning.finals import standings
from autotuner.views.finals_table import finals_table
from autotuner.views.leaderboard import leaderboard as leaderboard_table
from autotuner.views.studies_table import studies_table
from autotuner.views.terminal import printed, printed_in_full
from autotuner.views.trials_table import trials_of
from tests.helpers.recorded import PROBLEM, hold_finals, measured, raced_out, record_all, study_record
from tests.helpers.stores import sample_store
from tests.helpers.terminal import printed_at


def line_of(text: str, words: str) -> str:
    (line,) = (line for line in text.splitlines() if words in line)
    return line


def rows_of(text: str) -> list[str]:
    """The lines of finals: the finalists and SDPA."""
    return [line.rstrip() for line in text.splitlines() if "BLOCK_M" in line or "SDPA (flash)" in line]


@pytest.fixture
def study(store: Store, session: int) -> Store:
    """A store with three measured trials and one that was raced out."""
    record_all(store, session, [measured(16, 48.0), measured(32, 49.0), measured(64, 50.0), raced_out(8, 90.0)])
    return store


def finals_of(store: Store) -> FinalsRecord:
    found = standings.finals(store, "scalar-abc")
    assert found is not None
    return found


def leaderboard(store: Store, limit: int = 10) -> str:
    return printed_at(
        200, printed(leaderboard_table(standings.leaderboard(store, "scalar-abc", limit), study_record()), 200)
    )


def test_ties_are_shown_as_ties_and_nobody_is_crowned(study: Store) -> None:
    hold_finals(study, {16: 51.0, 32: 50.0, 64: 50.0}, {16: 0, 32: 1, 64: 2})
    text = leaderboard(study)
    for number, tile in ((1, 32), (2, 64)):
        assert line_of(text, f"BLOCK_M={tile}").split()[:2] == ["1=", str(number)]
    slow = line_of(text, "BLOCK_M=16").split()
    assert slow[:2] == ["3", "0"]
    assert "2.083x" in slow
    assert "+6.2%" in slow
    assert "not in finals" in line_of(text, "BLOCK_M=8")
    assert "Nobody is crowned." in text
    assert "unconfirmed, us: of the search" in text
    first = leaderboard(study, limit=1)
    assert "1=" in first
    assert "Nobody is crowned." in first


def test_finals_are_shown_with_sdpa_as_a_line(study: Store) -> None:
    hold_finals(study, {16: 50.0, 32: 50.0, 64: 55.0, 8: 110.0}, {16: 0, 32: 1, 64: 2, 8: 3})
    text = printed_at(200, printed(finals_table(finals_of(study), PROBLEM), 200))
    assert "5 fresh processes x 40 blocks" in text
    rows = rows_of(text)
    assert "1.000x" in rows[3]
    assert "SDPA (flash)" in rows[3]
    assert ["leads" in row or "as fast, 0." in row for row in rows] == [True, True, False, False, False]
    assert "% slower" in rows[2]
    assert "10." in rows[2]
    assert "Nobody is crowned." in text
    assert "Two of the finalists that differ by less than about 0." in text
    assert "Tie band: 0.50%: 2 standard deviations of 3 A/A races, and 0.50% at least." in text
    status = line_of(
        printed_at(200, printed_in_full(studies_table([standings.summary(study, "scalar-abc")]))), "finals"
    )
    assert status.endswith("nobody is crowned")
    assert ", tied with " in status


# At the width of a terminal -------------------------------------------------------------------------------------------


def lines_at(view: RenderableType, width: int) -> list[str]:
    return [line.rstrip() for line in printed_at(width, view).splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_every_table_of_a_study_fits(path: Path, width: int) -> None:
    name = sample_store(path)
    with Store.open(str(path)) as store:
        of, finals = queries.study(store, name), standings.finals(store, name)
        assert finals is not None
        trials = lines_at(printed(trials_of(store, name), width), width)
        tables = [*trials, *lines_at(printed(finals_table(finals, of.problems[0]), width), width)]
    assert max(map(len, tables)) <= width
    (revoked,) = (line for line in trials if line.split()[:1] == ["5"])
    (rejected,) = (line for line in trials if line.split()[:1] == ["1"])
    assert "x revoked" in revoked
    assert "x G2.T1" in rejected
    assert "x rejected, or revoked since." in " ".join(" ".join(trials).split())
