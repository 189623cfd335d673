"""A view is made once: a terminal, a page and a program have the same columns and the same figures of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from rich.console import Console

from autotuner.store import Store, figures
from autotuner.tuning import covered, standings
from autotuner.views import figure_tables
from autotuner.views.leaderboard import leaderboard
from autotuner.views.table import Cell, Table
from autotuner.views.terminal import printed
from autotuner.views.words import POINTS
from autotuner.web.templates import environment
from tests.helpers.recorded import hold_finals, measured, raced_out, record_all, study_record

STUDY = "scalar-abc"
BASELINE = figures.BaselineAt(
    session=1,
    at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    host="here",
    problem=study_record().problems[0],
    baseline="flash",
    median_us=1234.5678,
    pinned=True,
    beside_us=None,
    disturbed=None,
)
VIEWS = ("leaderboard", "history", "costs", "coverage", "baselines")


def view(name: str, store: Store) -> Table:
    if name == "leaderboard":
        return leaderboard(standings.leaderboard(store, STUDY, 10), study_record())
    if name == "history":
        return figure_tables.history_table(figures.history(store, STUDY), standings.every_confirmed(store, STUDY))
    if name == "costs":
        return figure_tables.costs_table(figures.costs(store, STUDY))
    if name == "coverage":
        return figure_tables.coverage_table(covered.coverage(store, STUDY))
    return figure_tables.baselines_table((BASELINE, BASELINE.model_copy(update={"disturbed": "make (pid 7)"})))


def on_a_page(found: Table) -> list[list[str]]:
    """The heads and the rows of the table that a page has."""
    macro = environment().get_template("parts.html").module.table  # type: ignore[attr-defined]
    rows = re.findall(r"<tr>(.*?)</tr>", str(macro(found, "a view")), re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[unescape(re.sub(r"<[^>]*>", "", cell)).replace("\xa0", "") for cell in row] for row in cells]


def in_a_terminal(found: Table) -> str:
    console = Console(width=400, color_system=None)
    with console.capture() as said:
        console.print(printed(found))
    return said.get()


@pytest.fixture
def filled(store: Store, session: int, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a study of four trials whose space counts as one of four points."""
    record_all(store, session, [measured(16, 48.0), measured(32, 49.0), measured(64, 50.0), raced_out(8, 90.0)])
    points = {"BLOCK_M": tuple((value, 1) for value in (8, 16, 32, 64))}
    monkeypatch.setattr(covered, "_counted", lambda document, facts: (4, points))
    return store


@pytest.mark.parametrize("finals", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_terminal_page_and_json_have_the_same_columns_and_figures(filled: Store, name: str, finals: bool) -> None:
    if finals:
        hold_finals(filled, {16: 51.0, 32: 50.0, 64: 50.0}, {16: 0, 32: 1, 64: 2})
    found = view(name, filled)
    assert found.rows
    head, *rows = on_a_page(found)
    assert head == [column.text for column in found.columns]
    assert rows == [[cell.text for cell in row.cells] for row in found.rows]
    said = in_a_terminal(found)
    for place, column in enumerate(found.columns):
        assert column.text in said
        assert column.key == POINTS or all(row.cells[place].text in said for row in found.rows)
    for row, of in zip(found.json(), found.rows, strict=True):
        assert isinstance(row, dict)
        assert [key for key in row if key != "sign"] == [column.key for column in found.columns]
        for column, cell in zip(found.columns, of.cells, strict=True):
            assert agrees(row[column.key], cell), column.key


def agrees(value: object, cell: Cell) -> bool:
    """Whether what a program reads is what a person reads, to the digits that are shown."""
    shown = re.fullmatch(r"[~]?([-+]?[\d,]+(?:\.(\d+))?)(x| %|%)?[=*]?", cell.text)
    if isinstance(value, int | float) and shown is not None:
        percent = shown[3] in (" %", "%")
        digits = len(shown[2] or "")
        return bool(abs(value * (100 if percent else 1) - float(shown[1].replace(",", ""))) <= 0.5001 * 10.0**-digits)
    return value is None or isinstance(value, float | dict) or str(value).replace("T", " ")[:10] in cell.text
