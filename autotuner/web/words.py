"""Numbers, spans and times as the pages write them, and the kinds of outcomes that they tell apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup, escape

from autotuner.store import ListedTrial
from autotuner.values.ratio import Speedup
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict

KINDS: Mapping[str, str] = {
    "measured": "measured",
    "raced_out": "stopped early: clearly slower, an estimate",
    "duplicate": "same program as another",
    "wrong": "rejected: wrong, or not the same twice",
    "build": "rejected: not built, or over a limit",
    "died": "rejected: crashed, hung or not launched",
    "doubtful": "not believed: a disturbed machine, or a fault of ours",
}
"""The kinds of outcomes that a figure tells apart, and what each is."""
_KIND = {
    Verdict.MEASURED: "measured",
    Verdict.RACED_OUT: "raced_out",
    Verdict.DEDUPLICATED: "duplicate",
    Verdict.OVER_LIMITS: "build",
    Verdict.BUILD_FAILED: "build",
    Verdict.BUILD_TIMEOUT: "build",
    Verdict.LAUNCH_FAILED: "died",
    Verdict.CRASHED: "died",
    Verdict.HUNG: "died",
    Verdict.DISTURBED: "doubtful",
    Verdict.INFRA_ERROR: "doubtful",
    Verdict.ORACLE_ERROR: "doubtful",
}


def kind_of(verdict: Verdict, revoked: bool = False) -> str:
    """The kind of an outcome; a revoked one turned out to be wrong."""
    return "wrong" if revoked else _KIND.get(verdict, "wrong")


def kind(trial: ListedTrial) -> str:
    """The kind of a trial."""
    return kind_of(trial.verdict, trial.revoked)


def ratio(value: float | None) -> str:
    """A speedup."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.3f}\N{MULTIPLICATION SIGN}"


def ends(speedup: Speedup) -> str:
    """The ends of the interval of a speedup."""
    return f"{speedup.low:.3f} to {speedup.high:.3f}" if speedup.bounded else "too few values for an interval"


def percent(share: float | None, places: int = 0) -> str:
    """A share of one."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.{places}f} %"


def micros(value: float | None) -> str:
    """Microseconds, without the unit."""
    return "-" if value is None or not math.isfinite(value) else f"{value:,.2f}" if value < 100 else f"{value:,.1f}"


def span(seconds: float) -> str:
    """A length of time in the two largest units."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if not minutes and not hours:
        return f"{rest} s"
    if hours:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"


def about(seconds: float) -> str:
    """An estimated length of time, as precise as estimates are."""
    return span(60 * round(seconds / 60) if 90 <= seconds < math.inf else seconds)


def commands(text: str) -> Markup:
    """A text whose `commands` are set as such."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is left open
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def clock(seconds: float) -> str:
    """A whole length of time on an axis."""
    for unit, name in ((3600, "h"), (60, "min")):
        if abs(seconds) >= unit and seconds % 1800 * (unit == 3600) == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s" if seconds else "0"


def when(moment: datetime) -> Markup:
    """A moment, in UTC; the page's script writes it in the reader's zone."""
    utc = moment.astimezone(UTC)
    written = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(timespec="seconds"), written)


def point(values: Mapping[str, Value]) -> str:
    """A point of a space."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def cut(text: str, most: int) -> str:
    """The text, its end left out where it is longer than that."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


class Differences(NamedTuple):
    """Points of a space, by what tells them apart."""

    shared: dict[str, Value]
    names: tuple[str, ...]

    @classmethod
    def of(cls, points: list[dict[str, Value]]) -> Differences:
        """What all points have in common, and the names of the parameters that differ."""
        first = points[0] if points else {}
        shared = {name: value for name, value in first.items() if all(each.get(name) == value for each in points)}
        names = dict.fromkeys(name for each in points for name in each if name not in shared)
        return cls(shared, tuple(names))

    def short(self, values: Mapping[str, Value], most: int = 5) -> str:
        """A point by its differing parameters, the first few of them."""
        own = [f"{name}={values[name]}" for name in self.names if name in values]
        return " ".join(own[:most]) + (" ..." if len(own) > most else "") or "the same as all"
