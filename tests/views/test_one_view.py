"""A view is made once: a terminal, a page and a program have the same columns and the same figures of it."""

import json
import re
from collections.abc import Callable, Mapping
from html import unescape

import pytest
from pydantic import BaseModel

from autotuner.jobs import queue
from autotuner.jobs.outlook import outlook
from autotuner.ops import op_of
from autotuner.store import Store, device_health, figures, sweeps
from autotuner.tuning.again import Race
from autotuner.tuning.finals import standings
from autotuner.values.gate_report import CaseResult, CheckResult, ReferenceCheck
from autotuner.values.outcome import Calibration
from autotuner.values.ratio import Speedup
from autotuner.views import beliefs_text, figure_tables, gate_tables, sweep_tables
from autotuner.views.figure_tables import comparison
from autotuner.views.finals_table import finals_table, race_table
from autotuner.views.leaderboard import leaderboard
from autotuner.views.space_tables import space_tables
from autotuner.views.studies_table import studies_table
from autotuner.views.surrogate_beliefs import Belief, Beliefs, PairEffect, ParameterEffect, ValueEffect
from autotuner.views.table import Cell, Table
from autotuner.views.terminal import printed, printed_in_full
from autotuner.views.trials_table import blocks_table, trials_of
from autotuner.views.words import POINTS
from autotuner.web import wire
from autotuner.web.reader import Reader
from autotuner.web.templates import environment
from tests.helpers import simulated
from tests.helpers.recorded import case_errors, hold_finals, measured, raced_out, record_all, study_record
from tests.helpers.terminal import printed_at

STUDY = "scalar-abc"
SDPA = op_of(study_record().problems[0])
FOUND = CaseResult(case="a case", seed_index=1, errors=case_errors(0.5))
CHECKS = (
    CheckResult(code="G2.T1", status="fail", seconds=0.25, launches=3, cases=(FOUND,)),
    CheckResult(code="G8.memory", status="unavailable", seconds=0.0, note="not installed"),
)
BELIEF = Belief(point={"IMPL": "simd", "BLOCK_M": 16}, low=1.1, speedup=1.25, high=1.5, judged=False, gain=0.0123)
VALUES = tuple(
    ValueEffect(value=value, points=20, judged=3, speedup=1.2 - slower, slower=slower, best=1.25)
    for value, slower in ((16, 0.0), (32, 0.052))
)
BELIEFS = Beliefs(
    looked_at=40,
    parameters=(ParameterEffect(parameter="BLOCK_M", share=0.613, fast_share=0.27, values=VALUES),),
    pairs=(PairEffect(parameters=("BLOCK_M", "IMPL"), share=0.1, fast_share=0.2),),
    best=BELIEF.model_copy(update={"gain": None, "judged": True}),
    promising=(BELIEF,),
    gain=0.0123,
    converged=False,
    trust=None,
)
REFERENCES = Calibration(
    baselines=("flash",),
    timings=(),
    references=(ReferenceCheck(backend="flash", case="a case", errors=case_errors(2.5)),),
)


def asked_for(store: Store) -> list[int]:
    """A group of two sweeps, of which the first has begun."""
    file = simulated.space().file
    made, _ = queue.submit(store, *[queue.request_for(file, name="two", trials=10)] * 2)
    first, *_ = made
    assert sweeps.claim(store, first.id, "sweep 1") is not None
    sweeps.work(store, first.id, 130.0, STUDY)
    return [each.id for each in made]


def queued(store: Store) -> Table:
    return sweep_tables.sweeps_table([outlook(store, number) for number in asked_for(store)])


def happened(store: Store) -> Table:
    return sweep_tables.events_table(sweeps.events(store, asked_for(store)[0]))


def served(store: Store) -> Table:
    with device_health.serving(store, {"here/cpu": ["cpu"]}, "here", "cpu", "a model", "sweep 1"):
        device_health.quarantine(store, ["here/cpu"], "it is hot", "cool it", None)
    return sweep_tables.devices_table(device_health.every(store))


def raced(store: Store) -> Table:
    """Of finals that are held for it where there were none yet."""
    if standings.finals(store, STUDY) is None:
        hold_finals(store, {16: 51.0, 32: 50.0, 64: 50.0}, {16: 0, 32: 1, 64: 2})
    found = standings.finals(store, STUDY)
    assert found is not None
    return finals_table(found, study_record().problems[0])


AGAIN = Race(
    study=STUDY,
    trial=3,
    variant=measured(16, 48.0).variant,
    against="flash",
    problems=study_record().problems,
    objective="mean",
    speedup=Speedup(low=1.1, mid=1.25, high=1.5),
    blocks=12,
    tie=0.005,
)


VIEWS: Mapping[str, tuple[Callable[[Store], Table], type[BaseModel] | None]] = {
    "leaderboard": (lambda store: leaderboard(standings.leaderboard(store, STUDY, 10), study_record()), wire.Ranked),
    "trials": (lambda store: trials_of(store, STUDY), wire.Trial),
    "history": (
        lambda store: figure_tables.history_table(
            figures.history(store, STUDY), standings.every_confirmed(store, STUDY)
        ),
        wire.Improvement,
    ),
    "costs": (lambda store: figure_tables.costs_table(figures.costs(store, STUDY)), wire.VerdictCost),
    "comparison": (lambda store: figure_tables.comparison_table((STUDY, STUDY), comparison(store, STUDY, STUDY)), None),
    "studies": (lambda store: studies_table(standings.studies(store)), wire.Study),
    "sweeps": (queued, wire.Sweep),
    "events": (happened, None),
    "finals": (raced, None),
    "shares": (lambda _: beliefs_text.shares_table(BELIEFS), None),
    "effects": (lambda _: beliefs_text.effects_table(BELIEFS), None),
    "promising": (lambda _: beliefs_text.promising_table(BELIEFS), None),
    "checks": (lambda _: gate_tables.checks_table(CHECKS, SDPA, ("a reason",)), None),
    "cases": (lambda _: gate_tables.cases_table(CHECKS), None),
    "references": (lambda _: gate_tables.reference_table(REFERENCES, study_record().device), None),
    "parameters": (lambda _: space_tables(simulated.space())["parameters"], None),
    "constraints": (lambda _: space_tables(simulated.space())["constraints"], None),
    "devices": (served, wire.Device),
    "blocks": (lambda _: blocks_table(measured(16, 48.0).measurement.timings[0]), None),
    "problems": (lambda store: figure_tables.problems_table(Reader(store).study(STUDY)), None),
    "again": (lambda _: race_table(AGAIN), None),
}


def on_a_page(found: Table) -> list[list[str]]:
    """The heads and the rows of the table that a page has."""
    macro = environment().get_template("parts.html").module.table  # type: ignore[attr-defined]
    rows = re.findall(r"<tr>(.*?)</tr>", str(macro(found, "a view")), re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[unescape(re.sub(r"<[^>]*>", "", cell)).replace("\xa0", "") for cell in row] for row in cells]


@pytest.fixture
def filled(store: Store, session: int) -> Store:
    """A store with a study of four trials."""
    record_all(store, session, [measured(16, 48.0), measured(32, 49.0), measured(64, 50.0), raced_out(8, 90.0)])
    return store


AFTER_FINALS = ("leaderboard", "trials", "history", "comparison", "studies", "sweeps", "problems")
"""Views that may show what finals found."""


@pytest.mark.parametrize(
    ("name", "finals"), [*((each, False) for each in VIEWS), *((each, True) for each in AFTER_FINALS)]
)
def test_terminal_page_and_json_have_the_same_columns_and_figures(filled: Store, name: str, finals: bool) -> None:
    if finals:
        hold_finals(filled, {16: 51.0, 32: 50.0, 64: 50.0}, {16: 0, 32: 1, 64: 2})
    make, model = VIEWS[name]
    found = make(filled)
    assert found.rows
    told = found.shown("table", "wide")
    head, *rows = on_a_page(found)
    assert head == [column.title for column in told.columns]
    assert rows == [[cell.text.replace("`", "") for cell in row.cells] for row in told.rows]
    said, in_full = printed_at(600, printed(found, 600)), printed_at(600, printed_in_full(found))
    for place, column in enumerate(told.columns):
        assert column.title in said
        assert column.key == POINTS or all(row.cells[place].text in said for row in told.rows)
    for row in found.shown("full").rows:
        assert all(cell.text in in_full for cell in row.cells)
    for line, row in zip(found.json(), found.rows, strict=True):
        assert isinstance(line, dict)
        assert [*line] == [column.key for column in found.columns]
        for column, cell in zip(found.columns, row.cells, strict=True):
            assert column.where == "data" or agrees(line[column.key], cell), column.key
        if model is not None:
            model.model_validate_json(to_text(line), strict=True)


def to_text(line: object) -> str:
    return json.dumps(line, allow_nan=False)


def agrees(value: object, cell: Cell) -> bool:
    """Whether what a program reads is what a person reads, to the digits that are shown."""
    shown = re.fullmatch(r"[~]?([-+]?[\d,]+(?:\.(\d+))?)(x| %|%)?[=*]?", cell.text)
    if isinstance(value, int | float) and shown is not None:
        percent = shown[3] in (" %", "%")
        digits = len(shown[2] or "")
        return bool(abs(value * (100 if percent else 1) - float(shown[1].replace(",", ""))) <= 0.5001 * 10.0**-digits)
    if not isinstance(value, str) or value in cell.text:
        return True
    return value.replace("T", " ")[:10] in cell.text or " " in cell.text
