"""The pages of a study. A server shows one at a time, as its reader asks for it; a saved file has all of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from autotuner.values.errors import InputError
from autotuner.views import beliefs_text
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.drawings import history, leaderboard, rejects
from autotuner.views.drawings.figure import Lead, Panel, Part, Passage
from autotuner.views.drawings.links import Links
from autotuner.views.figure_tables import FIGURES, problems_table
from autotuner.views.snapshot import Snapshot


class Section(NamedTuple):
    """A page: its name in addresses, what leads to it, and what it shows; of a cause of rejects, where one is asked."""

    key: str
    title: str
    parts: Callable[[Snapshot, Links, str | None], Sequence[Part]]


def _tried(snapshot: Snapshot) -> Part:
    try:
        return Panel("What was tried", FIGURES["coverage"](snapshot))
    except InputError as error:
        return Lead(str(error))


def _spent(snapshot: Snapshot) -> tuple[Part, ...]:
    shown = (("What it cost", "costs"), ("Baselines at each start", "baselines"))
    return tuple(Panel(title, FIGURES[name](snapshot)) for title, name in shown)


SECTIONS = (
    Section("rejects", "Why rejected", rejects.rejects),
    Section("best", "Best so far", lambda of, to, _: history.history(of, to) or (Lead("No trial was recorded yet."),)),
    Section("leaderboard", "Leaderboard", lambda of, to, _: (leaderboard.leaderboard(of, to),)),
    Section("problems", "Problems", lambda of, *_: (Panel("Problems by variants", problems_table(of)),)),
    Section("coverage", "Coverage", lambda of, to, _: (_tried(of),)),
    Section("costs", "Costs", lambda of, *_: _spent(of)),
)
TABS = (("variants", "Variants"), *((each.key, each.title) for each in SECTIONS), ("beliefs", "Beliefs"))
"""What leads to each page of a study but the first, those included that a script draws or that take long to find."""


def overview(snapshot: Snapshot, links: Links) -> tuple[Part, ...]:
    """What the first page has beside the answers: the best so far, the first of the leaderboard, why variants were
    rejected."""
    board = leaderboard.leaderboard(snapshot, links, 8)
    return (*history.history(snapshot, links), board, *rejects.rejects(snapshot, links))


def believed(found: StudyBeliefs, newer: str = "") -> tuple[Part, ...]:
    """What a study has shown of its space. `newer`: what is said of variants that the beliefs do not know yet."""
    after = f"After {found.judged:,} judged variants of {found.points:,} valid points."
    panels = (Panel(table.above[0], table) for table in beliefs_text.tables(found))
    return Lead(f"{after} {newer}".rstrip()), *panels, Passage("in-words", "In words", tuple(beliefs_text.lines(found)))
