"""What a study has shown of its space: what matters, what interacts, what is left, and how far to trust that."""

from __future__ import annotations

from autotuner.views import beliefs_text
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.drawings.charts import Bar, bars
from autotuner.views.drawings.figure import Figure, Lead, Panel, Part, Passage
from autotuner.views.surrogate_beliefs import Beliefs
from autotuner.views.words import percent

LEFT = 210


def believed(found: StudyBeliefs, newer: str = "") -> tuple[Part, ...]:
    """The drawings and the words. `newer`: what is said of variants that the beliefs do not know yet."""
    after = f"After {found.judged:,} judged variants of {found.points:,} valid points."
    words = Passage("in-words", "In words", tuple(beliefs_text.lines(found)))
    return Lead(f"{after} {newer}".rstrip()), *_figures(found.beliefs), words


def _figures(beliefs: Beliefs | None) -> tuple[Part, ...]:
    """Nothing where too few trials were measured."""
    if beliefs is None:
        return ()
    effects = Panel("What each value costs", beliefs_text.effects_table(beliefs))
    return _shares(beliefs), effects, Panel("What is left to find", beliefs_text.promising_table(beliefs))


def _shares(beliefs: Beliefs) -> Figure:
    rows = []
    for name, share, fast, is_pair in beliefs_text.shares_of(beliefs):
        look, text = f"bar {'pair' if is_pair else 'measured'}", f"{percent(share, 1)} ({percent(fast, 1)})"
        rows.append(Bar(name, look, share, text, thin=(f"{look} pale", fast)))
    drawing = bars("Shares of the variance that parameters explain", rows, LEFT)
    note = "The share of the believed speed's variance that each explains alone, and two together beyond each alone."
    note += " The thin bar: in the fastest quarter of the points."
    return Figure("matters", "What matters", note, drawing, beliefs_text.shares_table(beliefs))
