"""Every trial of a study as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.ops import op_of
from autotuner.store import StudyRecord
from autotuner.values.verdict import Verdict
from autotuner.views.terminal import STYLES, WIDE, Fitted, beside, new_table, note
from autotuner.views.trial_lines import TrialLine
from autotuner.views.words import ESTIMATE, OURS, POINTS, REJECT, over_words

SIGNS = {
    ESTIMATE: "the race was stopped early: an estimate from few blocks",
    REJECT: "rejected, or revoked since",
    OURS: "says nothing of the variant",
}


def trials_table(lines: Sequence[TrialLine], of: StudyRecord) -> RenderableType:
    """A row a trial, by number."""
    if not lines:
        return Text("No trial was judged yet.")
    baseline = op_of(of.problems[0]).words.baseline
    above, points = beside([line.parameters for line in lines])

    def made(width: int) -> RenderableType:
        wide = width >= WIDE
        more = ("confirmed", f"{baseline} us", "seconds") if wide else ()
        right = (0, 1, 2, 4, 5, 6) if wide else (0, 1, 2)
        table = new_table("trial", "speedup", "us", "came to", *more, POINTS, right=right)
        for line, point in zip(lines, points, strict=True):
            extra = (_speedup(line.confirmed), _micros(line.baseline_us), f"{line.seconds:.1f}") if wide else ()
            cells = str(line.number), _estimate(line), _micros(line.variant_us), _came_to(line), *extra
            table.add_row(*cells, point, style=STYLES.get(sign_of(line), ""))
        return table

    signs = [sign for sign in SIGNS if any(sign_of(line) == sign for line in lines)]
    notes = [*(f"{sign} {SIGNS[sign]}." for sign in signs), over_words(len(of.problems), of.objective)]
    return Group(*above, Fitted(made), note(" ".join(filter(None, notes))))


def sign_of(line: TrialLine) -> str:
    """What a trial is at a glance; "" for one that was measured to the end."""
    if line.revoked is not None:
        return REJECT
    if not line.verdict.judges:
        return OURS
    if not line.verdict.has_latency:
        return REJECT
    return ESTIMATE if line.censored else ""


def _came_to(line: TrialLine) -> str:
    if line.revoked is not None:
        return f"{REJECT} revoked"
    sign = sign_of(line)
    mark = f"{sign} " if sign in (REJECT, OURS) else ""
    return mark + (line.fault if line.fault is not None and line.verdict != Verdict.RACED_OUT else line.verdict.words)


def _estimate(line: TrialLine) -> str:
    return f"{ESTIMATE if line.censored else ''}{_speedup(line.speedup)}"


def _speedup(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}x"


def _micros(us: float | None) -> str:
    return "" if us is None else f"{us:.1f}"
