"""How far a study is, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from autotuner.ops import op_of
from autotuner.views.words import LATER, ends, numbers_words

if TYPE_CHECKING:  # sqlalchemy takes longer to import than a table to print
    from autotuner.tuning.standings import FinalsSummary, StudySummary


def status_text(summary: StudySummary) -> RenderableType:
    """One study at a glance."""
    baseline = op_of(summary.problems[0]).words.baseline
    lines = [
        f"{summary.name}: {'running' if summary.running else 'idle'}, sampler {summary.sampler}, {summary.cache} cache",
        f"  device    {summary.device}",
        *(f"  problem   {problem}" for problem in summary.problems),
        f"  judged    {summary.judged}: "
        + ", ".join(f"{count} {kind.words}" for kind, count in summary.by_verdict.items()),
    ]
    if summary.by_fault:
        lines.append("  rejected  " + ", ".join(f"{count} {code}" for code, count in summary.by_fault.items()))
    if summary.revoked:
        lines.append(f"  revoked   {summary.revoked}")
    if summary.disturbed:
        lines.append(f"  disturbed {len(summary.disturbed)}: trial {numbers_words(summary.disturbed)}; {LATER}")
    if summary.best_number is not None:
        by = "confirmed" if summary.best_confirmed else f"by the search ({summary.best_us:.1f} us), not confirmed"
        lines.append(f"  best      trial {summary.best_number}: {summary.best_speedup:.3f}x {baseline} {by}")
    if summary.finals is not None:
        lines.append(f"  finals    {_finals_line(summary.finals, baseline)}")
    if summary.spread is not None:
        spread = summary.spread
        lines.append(
            f"  spread    {spread.worst_to_best:.1f}x between the worst ({spread.worst_us:.1f} us) and the best "
            f"({spread.best_us:.1f} us) of {spread.measured} right ones"
        )
    lines.append(f"  last      {summary.last_activity:%Y-%m-%d %H:%M:%S} UTC")
    return Text("\n".join(lines))


def _finals_line(finals: FinalsSummary, baseline: str) -> str:
    """The last finals in a line."""
    head = f"{finals.finished_at:%Y-%m-%d %H:%M:%S} UTC, {finals.processes} processes x {finals.blocks} blocks"
    if finals.leader is None or finals.speedup is None:
        return f"{head}: no finalist is left"
    confirmed = f"{finals.speedup.mid:.3f}x {baseline} ({ends(finals.speedup)})"
    line = f"{head}: trial {finals.leader} leads, confirmed {confirmed}"
    others = ", ".join(str(number) for number in finals.tied if number != finals.leader)
    line += f", tied with {others}" if others else ""
    line += ", crowned" if finals.crowned else ", nobody is crowned"
    return line + (f"; {finals.judged_since} judged since" if finals.judged_since else "")
