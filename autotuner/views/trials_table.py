"""Every trial of a study: what was tried, what came of it, what finals confirmed. The same columns for people, CSV,
JSON and data frames."""

import csv
import io
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple

from pydantic import JsonValue

from autotuner.store import ListedTrial, Store, StudyRecord, queries
from autotuner.tuning.finals import standings
from autotuner.values.model import json_of
from autotuner.values.outcome import Timing
from autotuner.values.ratio import UNCONFIRMED, Speedup
from autotuner.values.verdict import Verdict
from autotuner.views.table import Column, Fields, Table, data, points_column
from autotuner.views.trial_words import none_passed, report_of
from autotuner.views.words import ESTIMATE, OURS, POINTS, REJECT, micros, over_words, ratio, searched, signs_words


def trials_of(store: Store, study: str) -> Table:
    """Every recorded trial of a study by number, faults of ours included. Raises StoreError: no such study."""
    found = sorted(queries.listed(store, study), key=lambda each: each.number)
    return trials_table(found, standings.every_confirmed(store, study), queries.study(store, study))


def trials_table(found: list[ListedTrial], confirmed: Mapping[int, Speedup], of: StudyRecord) -> Table:
    """A row a trial, in this order. What has no latency that stands has None for speedups and microseconds.

    A speedup is t_baseline / t_variant: higher is better. Over several problems it is the geometric mean and so are the
    microseconds, or they are the worst problem's where the space file asks for that.
    """
    notes = [*signs_words({*map(sign_of, found)}), over_words(len(of.problems), of.objective)]
    line = " ".join(filter(None, notes)) if found else none_passed(of.name, 0)
    columns = trial_columns(confirmed, of.over)
    return Table.of(columns, found, [line] if line else [], sign_of)


field = Fields(ListedTrial)


def trial_columns(
    confirmed: Mapping[int, Speedup] | None = None, baseline: str = "baseline"
) -> list[Column[ListedTrial]]:
    """A trial in a list; `confirmed` in the last finals, by number."""

    def in_finals(part: Callable[[Speedup], float | None]) -> Callable[[ListedTrial], float | None]:
        known = confirmed or {}
        return lambda each: part(known[each.number]) if each.number in known else None

    return [
        field("number", head="trial", reads=str),
        field("verdict", type=str, head="came to", text=_came_to),
        *field.data(fault="fault_code", case="fault_case", detail="fault_detail"),
        Column("speedup", float, "t_baseline / t_variant, of the search", "speedup.mid", UNCONFIRMED, text=searched),
        data("speedup_low", float, "lower end of its 95 % interval", lambda e: e.speedup and _low(e.speedup)),
        data("speedup_high", float, of=lambda e: e.speedup and _high(e.speedup)),
        *field.data("censored"),
        Column("confirmed", float, "in the last finals", in_finals(lambda e: e.mid), reads=ratio, where="wide"),
        data("confirmed_low", float, of=in_finals(_low)),
        data("confirmed_high", float, of=in_finals(_high)),
        field("variant_us", "median_us", head="us", reads="{:.1f}".format),
        field("baseline_us", head=f"{baseline} us", reads="{:.1f}".format, where="wide"),
        *field.data("original"),
        field("seconds", reads="{:.1f}".format, where="wide"),
        *field.data(session="session_id", recorded_at="recorded_at", revoked="revoked_reason"),
        points_column("parameters"),
    ]


def sign_of(trial: ListedTrial) -> str:
    """What a trial is at a glance; "" for one that was measured to the end."""
    if trial.revoked:
        return REJECT
    if not trial.verdict.judges:
        return OURS
    if not trial.verdict.has_latency:
        return REJECT
    return ESTIMATE if trial.censored else ""


def _came_to(trial: ListedTrial) -> str:
    if trial.revoked:
        return f"{REJECT} revoked"
    sign = sign_of(trial)
    mark = f"{sign} " if sign in (REJECT, OURS) else ""
    is_fault = trial.fault_code is not None and trial.verdict != Verdict.RACED_OUT
    return f"{mark}{trial.fault_code if is_fault else trial.verdict.words}"


def _low(found: Speedup) -> float | None:
    """The lower end; None where nothing bounds it."""
    return None if found.low == 0 else found.low


def _high(found: Speedup) -> float | None:
    """The upper end; None where nothing bounds it."""
    return None if found.high == math.inf else found.high


class Block(NamedTuple):
    """A block of a race: microseconds of one forward of each side."""

    block: int
    variant_us: float
    incumbent_us: float | None
    baseline_us: float


def blocks_table(timing: Timing) -> Table:
    """The raw blocks of a variant's race on one problem."""
    sides = zip_longest(timing.variant_us, timing.incumbent_us, timing.baseline_us)
    rows = [Block(place, *each) for place, each in enumerate(sides, start=1)]
    columns: list[Column[Block]] = [
        Column("block", int),
        Column("variant_us", float, head="variant us", reads=micros),
        Column("baseline_us", float, head=f"{timing.baseline} us", reads=micros),
        Column("incumbent_us", float, head="incumbent us", reads=micros),
        Column("speedup", float, "", lambda e: e.baseline_us / e.variant_us, f"speedup, {UNCONFIRMED}", ratio),
    ]
    return Table.of(columns, rows)


def trial_document(store: Store, study: str, number: int) -> dict[str, JsonValue]:
    """A trial for programs: its line in the list of trials, the raw blocks of its races, and the report on it. Raises
    StoreError: no such trial."""
    report, outcome = report_of(store, study, number), queries.trial(store, study, number).outcome
    lines = {line["number"]: line for line in trials_of(store, study).json()}
    timings = () if outcome.measurement is None else outcome.measurement.timings
    races: list[JsonValue] = [{"problem": str(one.problem), "blocks": [*blocks_table(one).json()]} for one in timings]
    profile = queries.profile(store, study, number)
    counted = None if profile is None else json_of(profile)
    return {"study": study, "trial": lines[number], "races": races, "report": json_of(report), "profile": counted}


def flat(trials: Table) -> list[dict[str, object]]:
    """The rows with each parameter in a column of its own; their names alone have capitals."""

    def one(line: dict[str, Any]) -> dict[str, object]:
        parameters = line.pop(POINTS)
        return {**line, **parameters}

    return [one(line) for line in trials.lines()]


def columns(trials: Table) -> tuple[str, ...]:
    """What every trial has, then each parameter that any of them has, IMPL first."""
    fixed = [each.key for each in trials.columns if each.key != POINTS]
    parameters = {name for line in flat(trials) for name in line} - {*fixed}
    return (*fixed, *sorted(parameters, key=lambda name: (name != "IMPL", name)))


def as_csv(trials: Table) -> str:
    """A line a trial below the names of the columns; what a trial does not have is empty. Times are ISO 8601, UTC."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(trials), lineterminator="\n")
    writer.writeheader()
    for line in flat(trials):
        writer.writerow({name: each.isoformat() if isinstance(each, datetime) else each for name, each in line.items()})
    return text.getvalue()
