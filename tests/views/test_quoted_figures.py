"""History, coverage, comparison and the queue quote what finals confirmed, and mark what is the search's own."""

from __future__ import annotations

import pytest
from rich.console import Console, RenderableType

from autotuner.jobs import queue
from autotuner.jobs.outlook import outlook
from autotuner.store import Store, figures, sweeps
from autotuner.tuning import covered
from autotuner.tuning.compared import comparison
from autotuner.tuning.finals import standings
from autotuner.views import figure_tables, sweep_tables, terminal
from autotuner.views.table import Table
from tests.helpers import simulated
from tests.helpers.recorded import hold_finals, measured, record_all

STUDY = "scalar-abc"


@pytest.fixture
def confirmed(store: Store, session: int) -> str:
    """By the search 0 is twice as fast as the baseline; finals confirmed 1.6 of it, and 2 was not in them."""
    record_all(store, session, [measured(16, 50.0), measured(32, 55.0), measured(64, 80.0)])
    hold_finals(store, {16: 62.5, 32: 80.0}, {16: 0, 32: 1})
    return STUDY


def printed(table: Table | RenderableType) -> str:
    console = Console(width=120)
    with console.capture() as said:
        console.print(terminal.printed(table) if isinstance(table, Table) else table)
    return said.get()


def test_what_is_confirmed_is_quoted_without_a_mark(store: Store, confirmed: str) -> None:
    found = standings.quoted(store, confirmed)
    assert found is not None
    assert found.confirmed
    assert found.speedup == pytest.approx(1.6, rel=0.01)
    assert [entry.number for entry in standings.confirmed_entries(store, confirmed)] == [0, 1]


def test_before_finals_the_search_is_quoted_with_a_mark(store: Store, session: int) -> None:
    assert standings.quoted(store, STUDY) is None
    record_all(store, session, [measured(16, 50.0)])
    found = standings.quoted(store, STUDY)
    assert found is not None
    assert found.speedup == pytest.approx(2.0)
    assert not found.confirmed
    assert standings.confirmed_entries(store, STUDY) == ()
    said = printed(figure_tables.history_table(figures.history(store, STUDY), standings.every_confirmed(store, STUDY)))
    assert "~2.000x" in said


def test_history_quotes_the_finals(store: Store, confirmed: str) -> None:
    found, known = figures.history(store, confirmed), standings.every_confirmed(store, confirmed)
    said = printed(figure_tables.history_table(found, known))
    assert f" {known[0].mid:.3f}x" in said
    assert "2.000x" not in said


def test_a_comparison_names_the_trial_to_use_of_each(store: Store, confirmed: str) -> None:
    found, best = comparison(store, confirmed, confirmed), standings.quoted(store, confirmed)
    other = standings.Quoted(speedup=1.5, confirmed=False)
    lines = figure_tables.comparison_table(("a", "b"), found, (best, other)).notes
    assert any("of a: 1.6" in line and "confirmed" in line for line in lines)
    assert "The trial to use of b: ~1.500x, by the search." in lines


def test_coverage_quotes_the_finals_of_the_values_that_were_in_them(
    store: Store, confirmed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"BLOCK_M": tuple((value, 1) for value in (16, 32, 64, 128))}
    monkeypatch.setattr(covered, "_counted", lambda document, facts: (4, points))  # the recorded space has no points
    found = covered.coverage(store, confirmed)
    (values,) = found.parameters.values()
    assert [each.best_confirmed for each in values] == [True, True, False, False]
    assert [each.best_speedup for each in values[:3]] == pytest.approx([1.6, 1.25, 1.25], rel=0.01)
    said = printed(figure_tables.coverage_table(found))
    assert said.count("~") == 1
    assert "~1.250x" in said


def test_the_queue_quotes_the_finals(store: Store, confirmed: str) -> None:
    number = queue.submit(store, queue.request_for(simulated.space().file, name="one", trials=10), 0, None)[0].id
    assert outlook(store, number).best_speedup is None
    claim = sweeps.claim(store, number, "me")
    assert claim is not None
    sweeps.work(store, number, 1.0, confirmed)
    found = outlook(store, number)
    claim.lease.release()
    assert found.best_confirmed
    assert found.best_speedup == pytest.approx(1.6, rel=0.01)
    assert " 1.6" in printed(sweep_tables.sweeps_table([found]))
