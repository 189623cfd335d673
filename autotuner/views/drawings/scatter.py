"""Every variant as a point: any two quantities or parameters against each other, rejects marked on the edge."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from autotuner.store import ListedTrial
from autotuner.values.ratio import UNCONFIRMED, speedup_of
from autotuner.values.variant import Value
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Plot, Scale, around
from autotuner.views.snapshot import Snapshot, cause_of
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
STAGES: Mapping[str, Callable[[ListedTrial], float | None]] = {
    "build": lambda trial: trial.build_s,
    "check": lambda trial: trial.check_s,
    "measure": lambda trial: trial.measure_s,
}
LATENCIES = ("speedup", "us")
SIZE = (860.0, 460.0)
EDGE = 34.0
"""Pixels of the strip for rejects."""
TABLE = 100
"""Rows of the table: the fastest of what the filters let through."""


class Choice(NamedTuple):
    """What is drawn: two axes, a colour and the values that each filtered parameter may have."""

    x: str
    y: str
    colour: str
    filters: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, asked: Sequence[tuple[str, str]], snapshot: Snapshot) -> Choice:
        """From a request's query: `x`, `y`, `colour`, and `p.NAME=VALUE` for each value that a filter lets through.
        What it does not know counts as not said."""
        known, filters = parameters(snapshot), dict[str, tuple[str, ...]]()
        for name, value in asked:
            parameter = name.removeprefix("p.")
            if name != parameter and value in map(str, known.get(parameter, ())):
                filters[parameter] = (*filters.get(parameter, ()), value)
        said = {name: value for name, value in asked if value in known or (value in QUANTITIES and name != "colour")}
        return cls(said.get("x", "number"), said.get("y", "speedup"), said.get("colour", "kind"), filters)

    def lets(self, trial: ListedTrial) -> bool:
        """Whether the filters let a trial through."""
        return all(str(trial.parameters.get(name, "absent")) in values for name, values in self.filters.items())


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


def value_of(trial: ListedTrial, name: str, snapshot: Snapshot) -> float | str | None:
    """A trial's value on an axis."""
    if name == "speedup":
        return None if trial.objective is None else speedup_of(trial.objective)
    if name == "us":
        return None if trial.objective is None else trial.median_us
    if name == "number":
        return float(trial.number)
    if name == "minutes":
        return (trial.recorded_at - snapshot.trials[0].recorded_at).total_seconds() / 60
    if name in STAGES:
        return STAGES[name](trial)
    value = trial.parameters.get(name)
    return "absent" if value is None else str(value)


class Axis(NamedTuple):
    """An axis: numbers, or the values of a parameter side by side."""

    name: str
    levels: tuple[str, ...] | None
    reach: tuple[float, float]

    @classmethod
    def of(cls, name: str, snapshot: Snapshot, shown: Sequence[ListedTrial]) -> Axis:
        """From the shown trials."""
        values = parameters(snapshot).get(name)
        if values is not None:
            absent = ("absent",) if any(name not in each.parameters for each in snapshot.trials) else ()
            levels = tuple(map(str, values)) + absent
            return cls(name, levels, (-0.6, len(levels) - 0.4))
        numbers = [found for each in shown if isinstance(found := value_of(each, name, snapshot), float)]
        return cls(name, None, around(numbers))

    def place(self, trial: ListedTrial, snapshot: Snapshot) -> float | None:
        """Where a trial lies. Of a parameter's value the trials lie side by side, spread by their numbers."""
        found = value_of(trial, self.name, snapshot)
        if found is None or self.levels is None:
            return found if isinstance(found, float) else None
        return self.levels.index(str(found)) + 0.62 * (_spread(trial.number) - 0.5)


def scatter(snapshot: Snapshot, links: Links, choice: Choice) -> Figure:
    """The drawing for print and for readers without a script: one mark a pixel and colour."""
    shown = [each for each in snapshot.trials if choice.lets(each)]
    x, y = Axis.of(choice.x, snapshot, shown), Axis.of(choice.y, snapshot, shown)
    plot = Plot.of(
        SIZE, f"{len(shown)} variants: {choice.y} by {choice.x}", x.reach, y.reach, (12, 16 + EDGE, 40 + EDGE, 64)
    )
    _axis(plot, x, y)
    colours = {
        value: f"series-{place % 8}"
        for place, value in enumerate(map(str, parameters(snapshot).get(choice.colour, ())))
    }
    seen = set()
    for trial in sorted(shown, key=lambda each: each.objective is not None):
        at = _at(plot, trial, x, y, snapshot)
        level = str(trial.parameters.get(choice.colour))
        look = kind(trial) if choice.colour == "kind" else colours.get(level, "series-7")
        key = round(at[0]), round(at[1]), look
        if key not in seen:
            seen.add(key)
            plot.svg.add("circle", cx=at[0], cy=at[1], r=2.6, class_=f"dot {look}")
    fastest = sorted((each for each in shown if each.objective is not None), key=lambda each: each.objective or 0.0)
    columns: list[Column[ListedTrial]] = [
        trial_column(snapshot.name, links),
        Column("verdict", str, of="verdict.value", text=lambda e: e.verdict.words),
        Column("search", float, of="speedup.mid", head=f"speedup, {UNCONFIRMED}", reads=ratio),
        Column("variant_us", float, of="median_us", head="us", reads=micros),
        Column("parameters", dict[str, Value], head="variant", reads=point),
    ]
    table = Table.of(columns, fastest[:TABLE])
    note = (
        f"{len(shown):,} of {len(snapshot.trials):,} variants. What has no value on an axis, as a reject has no time,"
    )
    note += " lies on the edge beyond it. The table has the fastest."
    return Figure("scatter", "Every variant", note, plot.svg.render(), table, tuple(KINDS))


def _spread(number: int) -> float:
    """Between 0 and 1, evenly over the trials."""
    return (number * 0.6180339887) % 1


def _aside(number: int) -> float:
    """As `_spread`, and independent of it: side by side and up and down are not to line up."""
    return (number * 0.7548776662) % 1


def _at(plot: Plot, trial: ListedTrial, x: Axis, y: Axis, snapshot: Snapshot) -> tuple[float, float]:
    across, up = x.place(trial, snapshot), y.place(trial, snapshot)
    left = plot.x.end + 8 + _aside(trial.number) * (EDGE - 12) if across is None else plot.x(across)
    top = plot.y.start + 8 + _aside(trial.number) * (EDGE - 12) if up is None else plot.y(up)
    return left, top


def _axis(plot: Plot, x: Axis, y: Axis) -> None:
    svg = plot.svg
    if x.name in LATENCIES:
        svg.add("rect", x=plot.x.end, y=plot.y.end, width=EDGE, height=plot.y.start - plot.y.end, class_="edge")
    if y.name in LATENCIES:
        svg.add("rect", x=plot.x.start, y=plot.y.start, width=plot.x.end - plot.x.start, height=EDGE, class_="edge")
        svg.text(plot.x.start - 8, plot.y.start + EDGE / 2 + 4, "no time", "tick", "end")
    below = plot.y.start + EDGE
    for at, text in _ticks(plot.x, x):
        svg.line(at, below, at, below + 4)
        svg.text(at, below + 17, text, "tick", "middle")
    for at, text in _ticks(plot.y, y):
        svg.line(plot.x.start, at, plot.x.end, at, "grid")
        svg.text(plot.x.start - 8, at + 4, text, "tick", "end")
    svg.text((plot.x.start + plot.x.end) / 2, svg.height - 4, QUANTITIES.get(x.name, x.name), "name", "middle")
    middle = (plot.y.start + plot.y.end) / 2
    turned = f"rotate(-90 12 {middle:.1f})"
    svg.add(
        "text", QUANTITIES.get(y.name, y.name), x=12, y=middle, class_="name", text_anchor="middle", transform=turned
    )


def _ticks(scale: Scale, axis: Axis) -> list[tuple[float, str]]:
    if axis.levels is None:
        found = scale.ticks(7, 1.0 if axis.name == "number" else 0.0)
        return [(scale(tick), f"{tick:,.4g}" if abs(tick) < 1000 else f"{tick:,.0f}") for tick in found]
    return [(scale(place), level[:9]) for place, level in enumerate(axis.levels)]


# For the page's script --------------------------------------------------------------------------------------------


def data(snapshot: Snapshot) -> str:
    """Every trial by columns, as JSON: what the canvas draws. Values of a parameter are places in its list, -1 where it
    does not exist; what has no number is null."""
    return snapshot.once("scatter data", lambda: _data(snapshot))


def _data(snapshot: Snapshot) -> str:
    trials, found = snapshot.trials, parameters(snapshot)
    quantities = {name: [_rounded(value_of(each, name, snapshot)) for each in trials] for name in QUANTITIES}
    causes = list(snapshot.causes)
    codes = {code: place for place, code in enumerate(causes)}
    kinds = list(KINDS)
    document: dict[str, Any] = {
        "study": snapshot.name,
        "baseline": snapshot.baseline,
        "tie": snapshot.tie,
        "quantities": {name: {"label": QUANTITIES[name], "values": values} for name, values in quantities.items()},
        "parameters": {
            name: {
                "levels": [str(value) for value in values],
                "values": _places(trials, name, values),
            }
            for name, values in found.items()
        },
        "kinds": [{"name": name, "label": label} for name, label in KINDS.items()],
        "kind": [kinds.index(kind(each)) for each in trials],
        "causes": causes,
        "cause": [codes.get(cause_of(each) or "", -1) for each in trials],
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _places(trials: Sequence[ListedTrial], name: str, values: Sequence[Value]) -> list[int]:
    places = {value: place for place, value in enumerate(values)}
    return [places.get(each.parameters[name], -1) if name in each.parameters else -1 for each in trials]


def _rounded(value: float | str | None) -> float | int | None:
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else float(f"{value:.6g}")
