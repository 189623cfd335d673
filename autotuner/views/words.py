"""How figures, times and points read, in tables, sentences and drawings alike, and the kinds of outcomes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autotuner.values.ratio import Objective, Speedup, quoted
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict

if TYPE_CHECKING:  # sqlalchemy takes longer to import than a table to print
    from autotuner.store import ListedTrial
    from autotuner.values.outcome import Measurement

Point = Mapping[str, Value]
WINNER, TIE, ESTIMATE, REJECT, OURS = "*", "=", "~", "x", "!"
"""The signs of rows; what each says is in SIGNS."""
SIGNS = {
    WINNER: "crowned",
    TIE: "ties for the lead",
    ESTIMATE: "the race was stopped early: an estimate from few blocks",
    REJECT: "rejected, or revoked since",
    OURS: "says nothing of the variant",
}
POINTS = "parameters"
"""The head and the key of the column with points."""
MOST_NUMBERS = 12
"""Numbers of trials that a line lists."""
LATER = "the device was full, held down or busy with other work"


def ends(speedup: Speedup, of: str = "processes") -> str:
    """The ends of a speedup's interval; `of`: what there are too few of where it has none."""
    return f"{speedup.low:.3f} to {speedup.high:.3f}" if speedup.bounded else f"too few {of}"


def held_up_words(measured: Measurement) -> str:
    """How wide a disturbed measurement is, and who disturbed it; "" for any other."""
    if not measured.held_up and not measured.unseen:
        return ""
    found = measured.log_ratio.speedup
    by = f", {measured.disturbed}" if measured.disturbed else ""
    return f" (disturbed{by}: {ends(found, 'blocks')})"


def searched(trial: Any) -> str:
    """An estimate of the search where the head of its column says that; with a mark where its race was stopped."""
    return "" if trial.speedup is None else f"{ESTIMATE if trial.censored else ''}{trial.speedup.mid:.3f}x"


def best_quoted(best: Any, none: str = "") -> str:
    """The speedup of what has a best one, as every text quotes it."""
    return none if best.best_speedup is None else quoted(best.best_speedup, best.best_confirmed)


def signs_words(found: Collection[str]) -> list[str]:
    """What each of the signs says, a sentence each."""
    return [f"{sign} {says}." for sign, says in SIGNS.items() if sign in found]


def numbers_words(trials: Sequence[int]) -> str:
    """The first of the numbers."""
    shown = ", ".join(map(str, trials[:MOST_NUMBERS]))
    return f"{shown}, ..." if len(trials) > MOST_NUMBERS else shown


def counts_words(found: Mapping[str, int]) -> str:
    """How many there are of each."""
    return ", ".join(f"{count} {name}" for name, count in found.items())


def counted(count: int, noun: str) -> str:
    """Such as "1 trial" and "1,200 trials"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def over_words(problems: int, objective: Objective) -> str:
    """What figures over several problems are; "" for one problem."""
    if problems == 1:
        return ""
    if isinstance(objective, str):
        over = {
            "mean": f"geometric means over {problems} problems",
            "max": f"those of the worst of {problems} problems",
        }
        return f"Speedups and microseconds are {over[objective]}."
    shares = ", ".join(f"{100 * weight / math.fsum(objective):.2g} %" for weight in objective)
    return f"Speedups and microseconds are geometric means over {problems} problems, which count {shares}."


def ending_words(crowned: int | None, tied: Sequence[int], beaten: bool, baseline: str) -> str:
    """How finals ended. `beaten`: of those that they did not tell from the leader the search told some."""
    if crowned is not None:
        return f"Trial {crowned} is crowned: faster than {baseline} and every other finalist, by more than a tie."
    if tied:
        return "The finals cannot tell those apart that tie for the lead. Nobody is crowned."
    if beaten:
        return "What the finals do not tell from the first has lost to it in races of the search. Nobody is crowned."
    faster = f"shown to be faster than {baseline} and all others by more than a tie"
    return f"The first is not {faster}, or has not been through the longest soak. Nobody is crowned."


_KINDS = (
    ("measured", "measured", (Verdict.MEASURED,)),
    ("raced_out", "stopped early: clearly slower, an estimate", (Verdict.RACED_OUT,)),
    ("duplicate", "same program as another", (Verdict.DEDUPLICATED,)),
    ("wrong", "rejected: wrong, or not the same twice", ()),
    (
        "build",
        "rejected: not built, or over a limit",
        (Verdict.OVER_LIMITS, Verdict.BUILD_FAILED, Verdict.BUILD_TIMEOUT),
    ),
    ("died", "rejected: crashed, hung or not launched", (Verdict.LAUNCH_FAILED, Verdict.CRASHED, Verdict.HUNG)),
    (
        "doubtful",
        "not judged: a full or throttled device, or a fault of ours",
        (Verdict.DISTURBED, Verdict.INFRA_ERROR, Verdict.ORACLE_ERROR),
    ),
)
KINDS = {name: says for name, says, _ in _KINDS}
"""The kinds of outcomes that a figure tells apart, and what each is."""
_KIND = {verdict: name for name, _, verdicts in _KINDS for verdict in verdicts}


def kind_of(verdict: Verdict, revoked: bool = False) -> str:
    """The kind of an outcome; a revoked one turned out to be wrong."""
    return "wrong" if revoked else _KIND.get(verdict, "wrong")


def kind(trial: ListedTrial) -> str:
    """The kind of a trial."""
    return kind_of(trial.verdict, trial.revoked)


def ratio(value: float | None) -> str:
    """A speedup."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.3f}x"


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


def point(values: Mapping[str, Value]) -> str:
    """A point of a space."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def cut(text: str, most: int) -> str:
    """The text, its end left out where it is longer than that."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def plain(value: object) -> str:
    """As it is; whole numbers with a comma between thousands, moments in UTC."""
    return moment(value) if isinstance(value, datetime) else f"{value:,}" if isinstance(value, int) else str(value)


def moment(at: datetime) -> str:
    """A moment, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def compared(points: Sequence[Point]) -> tuple[str, tuple[str, ...]]:
    """Points in words: what all of them have, "" where that is nothing or there are fewer than two; and of the first
    the rest, of the others what the first has not. What an implementation lacks is not said."""
    if len(points) < 2:
        return "", tuple(point(each) for each in points)
    first, *others = points
    shared = {name for name, value in first.items() if all(name in p and p[name] == value for p in others)}
    rest = {name: value for name, value in first.items() if name not in shared}
    differ = ({name: value for name, value in each.items() if first.get(name) != value} for each in others)
    rows = (point(rest), *(point(each) or "as the first" for each in differ))
    return point({name: first[name] for name in first if name in shared}), rows
