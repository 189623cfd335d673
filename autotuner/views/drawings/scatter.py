"""Every variant as a point: what the page's script draws, any two quantities or parameters against each other."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotuner.store import ListedTrial
from autotuner.values.ratio import UNCONFIRMED, speedup_of
from autotuner.values.variant import Value
from autotuner.views.drawings.links import Links
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Column, Table, trial_column
from autotuner.views.words import KINDS, kind, micros, point, ratio

QUANTITIES: Mapping[str, str] = {
    "speedup": f"speedup, {UNCONFIRMED}",
    "us": "microseconds of one forward",
    "number": "trial",
    "minutes": "minutes since the first trial",
    "build": "seconds of the build",
    "check": "seconds of the gate",
    "measure": "seconds of the race",
}
"""What a variant has beside its parameters. Only the first two need a latency."""
DIGITS = (4, 4, 9, 4, 3, 3, 3)
"""Of each of them that a point needs: a page of 10,000 variants sends a third less."""
ABSENT = 48
"""The character of a parameter that a variant does not have; those of its values follow."""
TABLE = 100
"""Rows of the table: the fastest."""


def fastest(snapshot: Snapshot, links: Links) -> Table:
    """The fastest variants by the search."""
    found = sorted((each for each in snapshot.trials if each.objective is not None), key=lambda e: e.objective or 0.0)
    columns: list[Column[ListedTrial]] = [
        trial_column(snapshot.name, links),
        Column("verdict", str, of="verdict.value", text=lambda e: e.verdict.words),
        Column("search", float, of="speedup.mid", head=f"speedup, {UNCONFIRMED}", reads=ratio),
        Column("variant_us", float, of="median_us", head="us", reads=micros),
        Column("parameters", dict[str, Value], head="variant", reads=point),
    ]
    return Table.of(columns, found[:TABLE])


def parameters(snapshot: Snapshot) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter that were tried, of those with several."""

    def order(value: Value) -> tuple[bool, float, str]:
        return isinstance(value, str), 0.0 if isinstance(value, str) else float(value), str(value)

    def find() -> dict[str, tuple[Value, ...]]:
        values: dict[str, set[Value]] = {}
        for trial in snapshot.trials:
            for name, value in trial.parameters.items():
                values.setdefault(name, set()).add(value)
        return {name: tuple(sorted(found, key=order)) for name, found in values.items() if len(found) > 1}

    return snapshot.once("parameters", find)


def data(snapshot: Snapshot) -> str:
    """Every trial by columns, as JSON: what the canvas draws. Values of a parameter are a text, a character
    each: its place in the list of values; what has no number is null."""
    return snapshot.once("scatter data", lambda: _data(snapshot))


def _data(snapshot: Snapshot) -> str:
    trials, found = snapshot.trials, parameters(snapshot)
    columns = list(zip(*(_quantities(each, snapshot) for each in trials), strict=True)) or [()] * len(QUANTITIES)
    values = [[_rounded(each, digits) for each in column] for column, digits in zip(columns, DIGITS, strict=True)]
    causes = list(snapshot.causes)
    codes = {code: place for place, code in enumerate(causes)}
    kinds = list(KINDS)
    document: dict[str, Any] = {
        "study": snapshot.name,
        "baseline": snapshot.baseline,
        "tie": snapshot.tie,
        "quantities": {
            name: {"label": label, "values": column}
            for (name, label), column in zip(QUANTITIES.items(), values, strict=True)
        },
        "parameters": {
            name: {"levels": [str(value) for value in values], "values": _places(trials, name, values)}
            for name, values in found.items()
        },
        "kinds": [{"name": name, "label": label} for name, label in KINDS.items()],
        "kind": [kinds.index(kind(each)) for each in trials],
        "causes": causes,
        "cause": [codes.get(each.cause or "", -1) for each in trials],
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _quantities(trial: ListedTrial, snapshot: Snapshot) -> tuple[float | None, ...]:
    latency = (None, None) if trial.objective is None else (speedup_of(trial.objective), trial.median_us)
    minutes = (trial.recorded_at - snapshot.trials[0].recorded_at).total_seconds() / 60
    return *latency, float(trial.number), minutes, trial.build_s, trial.check_s, trial.measure_s


def _places(trials: Sequence[ListedTrial], name: str, values: Sequence[Value]) -> str:
    signs = {value: chr(place) for place, value in enumerate(values, ABSENT + 1)}
    return "".join(signs[each.parameters[name]] if name in each.parameters else chr(ABSENT) for each in trials)


def _rounded(value: float | None, digits: int) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else float(f"{value:.{digits}g}")
