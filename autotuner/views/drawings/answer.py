"""The answer strip: is it done, is it faster, is it right, and was the machine calm."""

from __future__ import annotations

import shlex
from typing import Literal, NamedTuple

from autotuner.values.ratio import BIASED, quoted
from autotuner.views.snapshot import Snapshot
from autotuner.views.words import ends, percent, ratio

Mood = Literal["good", "busy", "warn", "bad", "none"]
"""How a card looks; its words say the same."""
MOST = 6
"""Numbers of trials that a card lists."""


class Card(NamedTuple):
    """One answer: a question, the answer in large letters, and what stands behind it."""

    question: str
    answer: str
    mood: Mood
    lines: tuple[str, ...]
    command: str | None = None


def cards(snapshot: Snapshot, store: str) -> tuple[Card, ...]:
    """The four answers. `store`: how the command line names it."""
    return _state(snapshot, store), _faster(snapshot), _right(snapshot), _calm(snapshot)


def command(*words: str, store: str) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(["autotuner", *words, "--store", store])


def _state(snapshot: Snapshot, store: str) -> Card:
    rejected, judged = sum(snapshot.causes.values()), snapshot.judged
    head = (f"{judged:,} variants judged, {rejected:,} of them rejected",)
    finals = snapshot.finals_summary
    if snapshot.running:
        return Card("Is it done?", "Running", "busy", (*head, "This page follows it."))
    if finals is not None and not finals.judged_since:
        return Card("Is it done?", "Done", "good", (*head, f"Finals in {finals.processes} fresh processes a finalist."))
    remedy = command("finals", snapshot.name, store=store)
    if finals is not None:
        since = f"{finals.judged_since:,} variants were judged after the finals"
        return Card("Is it done?", "Stopped", "warn", (*head, since), remedy)
    if snapshot.best is None:
        return Card("Is it done?", "Stopped", "warn", (*head, "Nothing was measured to its end."))
    return Card("Is it done?", "Not confirmed", "warn", (*head, "The search has stopped before any finals."), remedy)


def _faster(snapshot: Snapshot) -> Card:
    question, best = f"Is it faster than {snapshot.baseline}?", snapshot.best
    if best is None:
        return Card(question, "No answer yet", "none", ("Nothing was measured to its end.",))
    if best.confirmed is None:
        found = best.entry.speedup
        lines = (
            f"Trial {best.entry.number}, by the search: {ends(found)}",
            BIASED,
        )
        return Card(question, quoted(found.mid, False), "none", lines)
    found_in_finals = best.confirmed
    interval = f"Trial {best.entry.number}, confirmed: 95 % interval {ends(found_in_finals)}"
    tied = [str(number) for number in best.tied if number != best.entry.number]
    if best.crowned:
        lines = (interval, "Crowned: faster than the baseline and every other finalist, by more than a tie.")
    elif tied:
        shown = ", ".join(tied[:MOST]) + (" and more" if len(tied) > MOST else "")
        lines = (interval, f"Ties with trial {shown}: the finals cannot tell them apart.")
    else:
        lines = (interval, "Not shown to be faster than the baseline by more than a tie.")
    return Card(question, ratio(found_in_finals.mid), "good" if found_in_finals.low > 1 else "warn", lines)


def _right(snapshot: Snapshot) -> Card:
    question, gate = "Can I believe it?", snapshot.gate
    if gate is None or snapshot.best is None:
        return Card(question, "Nothing to judge", "none", ("No variant was measured to its end.",))
    lines = [f"{len(gate.passed)} checks; {gate.cases:,} outputs compared with the float64 reference"]
    if gate.worst_ratio is not None:
        lines.append(f"The worst error is {percent(gate.worst_ratio)} of its tolerance.")
    if gate.many_launches:
        lines.append(f"{gate.many_launches:,} launches gave the same bits.")
    lines += [f"Loosened by the family: {reason}" for reason in gate.looser]
    if gate.unavailable:
        lines.append(f"Could not run here: {', '.join(gate.unavailable)}")
    return Card(question, "Gate passed", "warn" if gate.looser else "good", tuple(lines))


def _calm(snapshot: Snapshot) -> Card:
    question = "Was the machine calm?"
    if not snapshot.sessions:
        return Card(question, "Not known", "none", ("No run has begun.",))
    doubtful = snapshot.disturbed
    known = f"by {len(snapshot.heats):,} A/A races" if snapshot.heats else "as long as no A/A race was held"
    races = f"Ratios within {percent(snapshot.tie, 2)} are ties, {known}"
    lost = f"{len(doubtful):,} variants could not be measured: the device was full, or its clocks were held down."
    lines = [races, *([lost] if doubtful else [])]
    return Card(question, "Partly" if doubtful else "Calm", "warn" if doubtful else "good", tuple(lines))
