"""The answer strip: is it done, is it faster, is it right, and was the machine calm."""

import shlex
from typing import Literal, NamedTuple

from autotuner.values.ratio import BIASED, quoted
from autotuner.views.snapshot import Snapshot
from autotuner.views.trial_words import gate_line, place_words, proof_words
from autotuner.views.words import LATER, ends, percent, ratio

Mood = Literal["good", "busy", "warn", "bad", "none"]
"""How a card looks; its words say the same."""


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
        lines = f"Trial {best.entry.number}, by the search: {ends(found)}", BIASED
        return Card(question, quoted(found.mid, False), "none", lines)
    assert best.finals is not None  # they have confirmed it
    interval = f"Trial {best.entry.number}, confirmed: 95 % interval {ends(best.confirmed)}"
    mood: Mood = "good" if best.confirmed.low > 1 else "warn"
    return Card(question, ratio(best.confirmed.mid), mood, (interval, place_words(best, best.finals)))


def _right(snapshot: Snapshot) -> Card:
    question, gate = "Can I believe it?", snapshot.gate
    if gate is None or snapshot.best is None:
        return Card(question, "Nothing to judge", "none", ("No variant was measured to its end.",))
    lines = [gate_line(gate), *([proof_words(gate)] if gate.many_launches else [])]
    return Card(question, "Gate passed", "warn" if gate.looser else "good", tuple(lines))


def _calm(snapshot: Snapshot) -> Card:
    question = "Was the machine calm?"
    if not snapshot.sessions:
        return Card(question, "Not known", "none", ("No run has begun.",))
    doubtful = snapshot.disturbed
    known = f"by {len(snapshot.heats):,} A/A races" if snapshot.heats else "as long as no A/A race was held"
    races = f"Ratios within {percent(snapshot.tie, 2)} are ties, {known}"
    lost = f"{len(doubtful):,} variants could not be measured: {LATER}."
    lines = [races, *([lost] if doubtful else [])]
    return Card(question, "Partly" if doubtful else "Calm", "warn" if doubtful else "good", tuple(lines))
