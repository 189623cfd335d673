"""The pages of a study. A server shows one at a time, as its reader asks for it; a saved file has all of them."""

import math
import shlex
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from markupsafe import Markup

from autotuner.store import ListedTrial, queries
from autotuner.tuning.finals.standings import Entry
from autotuner.values.ratio import BIASED, UNCONFIRMED, Speedup, quoted, speedup_of
from autotuner.values.verdict import Meaning
from autotuner.views import beliefs_text
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.causes import meanings
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Plot, Scale, Svg, around
from autotuner.views.figure_tables import costs_table, history_table, problems_table
from autotuner.views.leaderboard import leaderboard as leaderboard_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Column, Table
from autotuner.views.trial_words import gate_line, place_words, proof_words, trial_words
from autotuner.views.words import LATER, compared, counted, cut, ends, kind, percent, ratio

# What a page shows: figures with their tables, which a person reads who does not see the drawing or wants the numbers;
# tables on their own; and sentences -----------------------------------------------------------------------------------


class Figure(NamedTuple):
    """A drawing, what it shows, and its table."""

    id: str
    title: str
    note: str
    svg: Markup | None
    table: Table
    open: bool = False
    """Whether the table is shown at once."""
    narrow: Markup | None = None
    """The drawing for narrow screens, where it is another one."""


class Panel(NamedTuple):
    """A table under a title."""

    title: str
    table: Table


class Passage(NamedTuple):
    """Lines for a person; one that begins with blanks belongs to the one above that does not."""

    id: str
    title: str
    lines: tuple[str, ...]
    number: int | None = None
    """The trial that they are about, which has a page."""


class Lead(NamedTuple):
    """A sentence."""

    text: str


Part = Figure | Panel | Passage | Lead


# The answers: is it done, is it faster, is it right, and was the machine calm -----------------------------------------


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
    head = (f"{counted(judged, 'variant')} judged, {rejected:,} of them rejected",)
    finals = snapshot.finals_summary
    if snapshot.running:
        return Card("Is it done?", "Running", "busy", (*head, "This page follows it."))
    if finals is not None and not finals.judged_since:
        return Card("Is it done?", "Done", "good", (*head, f"Finals in {finals.processes} fresh processes a finalist."))
    remedy = command("finals", snapshot.name, store=store)
    if finals is not None:
        since = f"{counted(finals.judged_since, 'variant')} judged after the finals"
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
    lost = f"{counted(len(doubtful), 'variant')} could not be measured: {LATER}."
    lines = [races, *([lost] if doubtful else [])]
    return Card(question, "Partly" if doubtful else "Calm", "warn" if doubtful else "good", tuple(lines))


# The best so far against the baseline, with the band in which nothing is told apart -----------------------------------

SIZE = (860.0, 320.0)
"""Pixels of a drawing."""
DOTS = 1500
"""Dots, at most: more would cover each other."""


def history(snapshot: Snapshot, links: Links) -> tuple[Figure, ...]:
    """One figure; nothing where there is no trial."""
    trials = snapshot.trials
    if not trials:
        return ()
    places = {trial.number: place for place, trial in enumerate(trials, start=1)}
    found = [(places[each.number], each) for each in snapshot.improvements if each.number in places]
    best = snapshot.best
    confirmed = None if best is None else best.confirmed
    high = max([1.02, *(each.speedup for _, each in found), *([confirmed.high] if confirmed is not None else [])])
    if not math.isfinite(high):
        high = max(each.speedup for _, each in found)
    low = min(0.9, found[0][1].speedup if found else 0.9)
    reach = 0.0, float(len(trials))
    plot = Plot.of(SIZE, f"Best so far against {snapshot.baseline}", reach, (low, high + 0.05 * high))
    svg, x, y = plot.svg, plot.x, plot.y
    top, bottom = y(1 + snapshot.tie), y(1 / (1 + snapshot.tie))
    svg.add("rect", x=x.start, y=top, width=x.end - x.start, height=max(2.0, bottom - top), class_="band")
    plot.axes("variants tried", f"speedup over {snapshot.baseline}")
    svg.line(x.start, y(1), x.end, y(1), "baseline")
    svg.text(x.end, y(1) - 5, f"{snapshot.baseline} = 1, with the A/A band", "tick halo", "end")
    _dots(plot, trials)
    path = "".join(f"H{x(place):.1f}V{y(each.speedup):.1f}" for place, each in found)
    if path:
        svg.add("path", d=f"M{path[1:].replace('V', ' ', 1)}H{x.end:.1f}", class_="best")
    for place, each in found:
        title = f"trial {each.number}: {quoted(each.speedup, False)}"
        svg.add("circle", cx=x(place), cy=y(each.speedup), r=3.5, class_="mark measured", title=title)
    if confirmed is not None and best is not None:
        at = x.end - 6
        svg.line(at, y(confirmed.low), at, y(confirmed.high), "interval")
        title = f"trial {best.entry.number}, confirmed {ratio(confirmed.mid)}"
        svg.add("circle", cx=at, cy=y(confirmed.mid), r=5, class_="mark confirmed", title=title)
        svg.text(at - 10, y(confirmed.mid) + 26, f"confirmed {ratio(confirmed.mid)}", "label strong halo", "end")
    confirmed_of = {} if best is None or confirmed is None else {best.entry.number: confirmed}
    table = history_table(snapshot.improvements, confirmed_of, snapshot.name, links)
    note = (
        f"The line is the best estimate of the search so far, {UNCONFIRMED}. Dots are variants that passed the gate, as"
        " far as the axis reaches; strokes below it are rejects."
    )
    return (Figure("best", "Best so far", note, svg.render(), table),)


def _dots(plot: Plot, trials: Sequence[ListedTrial]) -> None:
    """One a pixel and kind."""
    seen = set()
    ranked = [(place, each) for place, each in enumerate(trials, start=1) if each.objective is not None]
    every = max(1, len(ranked) // DOTS)
    for place, each in ranked[::every]:
        assert each.objective is not None
        speedup = speedup_of(each.objective)
        key = round(plot.x(place)), round(plot.y(speedup)), kind(each)
        if plot.y.holds(speedup) and key not in seen:
            seen.add(key)
            plot.svg.add("circle", cx=plot.x(place), cy=plot.y(speedup), r=2.2, class_=f"dot {kind(each)}")
    rejected = {round(plot.x(place)) for place, each in enumerate(trials, start=1) if each.objective is None}
    strokes = "".join(f"M{at} {plot.y.start + 1:.0f}v5" for at in sorted(rejected))
    if strokes:
        plot.svg.add("path", d=strokes, class_="strokes wrong")


# The leaderboard as a forest plot: confirmed intervals filled, search estimates hollow, ties shaded -------------------


class Shape(NamedTuple):
    """Pixels of the drawing, left of its marks, and of a row; letters of a point; where in a row its name and its
    marks are."""

    width: int
    left: int
    row: int
    letters: int
    name: float
    marks: float


WIDE, NARROW = Shape(860, 330, 30, 38, 19, 15), Shape(340, 14, 46, 32, 14, 32)
"""Names beside the marks, and above them where a screen is narrow."""


def leaderboard(snapshot: Snapshot, links: Links, most: int = 30) -> Figure:
    """The first lines of the leaderboard."""
    entries = snapshot.board[:most]
    note = f"Speedup over {snapshot.baseline} with its 95 % interval. Filled: confirmed in the finals. Hollow: the"
    note += " search's own estimate, unconfirmed. Shaded: they tie for the lead."
    table = leaderboard_table(entries, snapshot.record, links)
    wide, narrow = (_forest(snapshot, links, entries, shape) if entries else None for shape in (WIDE, NARROW))
    return Figure("leaderboard", "Leaderboard", note, wide, table, open=True, narrow=narrow)


def _forest(snapshot: Snapshot, links: Links, entries: Sequence[Entry], shape: Shape) -> Markup:
    found = [each for entry in entries for each in (entry.speedup, entry.confirmed) if each is not None]
    reach = [end for each in found for end in (each.low, each.mid, each.high) if 0 < end < math.inf]
    bottom = shape.row * len(entries) + 8
    svg = Svg(shape.width, bottom + 44, f"The {len(entries)} fastest variants")
    x = Scale(*around([1.0, *reach]), shape.left, shape.width - 24)
    for row in (row for row, entry in enumerate(entries) if entry.tied or entry.crowned):
        svg.add("rect", x=0, y=6 + shape.row * row, width=shape.width, height=shape.row, class_="tied")
    for at in x.ticks(7 if shape is WIDE else 4):
        svg.line(x(at), 6, x(at), bottom, "grid")
        svg.text(x(at), bottom + 16, f"{at:.4g}\N{MULTIPLICATION SIGN}", "tick", "middle")
    svg.line(x(1), 6, x(1), bottom, "baseline")
    svg.text((x.start + x.end) / 2, svg.height - 8, f"speedup over {snapshot.baseline}", "name", "middle")
    for row, (entry, point) in enumerate(zip(entries, compared([e.variant.point for e in entries])[1], strict=True)):
        top = 6 + shape.row * row
        y, at = top + shape.marks, top + shape.name
        svg.text(34, at, f"{entry.rank}{'=' if entry.tied else ''}", "label strong", "end")
        with svg.link(links.trial(snapshot.name, entry.number)):
            svg.text(44, at, f"#{entry.number}", "label link")
            svg.text(96, at, cut(point, shape.letters), "tick")
        said = f"trial {entry.number}, by the search {quoted(entry.speedup.mid, False)}"
        _interval(svg, x, y + (6 if entry.confirmed else 0), entry.speedup, ("estimate", "estimate", 4.5), said)
        if entry.confirmed is not None:
            said = f"trial {entry.number}, confirmed {ratio(entry.confirmed.mid)}"
            _interval(svg, x, y - 5, entry.confirmed, ("interval", "confirmed", 5.0), said)
    return svg.render()


def _interval(svg: Svg, x: Scale, y: float, found: Speedup, look: tuple[str, str, float], title: str) -> None:
    """A mark with the interval around it, where that has ends. `look`: of the line, of the mark, and its size."""
    if found.bounded:
        svg.line(x(found.low), y, x(found.high), y, look[0])
    svg.add("circle", cx=x(found.mid), cy=y, r=look[2], class_=f"mark {look[1]}", title=title)


# Why variants were rejected: the causes, and one trial in words -------------------------------------------------------


def rejects(snapshot: Snapshot, links: Links, cause: str | None = None) -> tuple[Part, ...]:
    """The causes and the last trial of one in words. `cause`: that is looked at, else the most frequent."""
    rejected = sum(snapshot.causes.values())
    lead = Lead(f"{rejected:,} of {snapshot.judged:,} judged variants were rejected.")
    chosen = cause if cause in snapshot.causes else next(iter(snapshot.causes), None)
    example: list[Passage] = []
    if chosen is not None:
        number, title = by_cause(snapshot.trials)[chosen], f"The last one of {chosen} in words: trial"
        example.append(Passage("one-trial", title, in_words(snapshot, number), number))
    return lead, Panel("Causes", _causes(snapshot, links)), *example


def _causes(snapshot: Snapshot, links: Links) -> Table:
    """The first check that failed, the most frequent first."""
    known, judged, unknown = meanings(snapshot.op), max(1, snapshot.judged), Meaning("")
    columns: list[Column[tuple[str, int]]] = [
        Column("check", str, of=lambda e: e[0], href=lambda e: links.cause(snapshot.name, e[0])),
        Column("rejects", int, of=lambda e: e[1]),
        Column("share", float, of=lambda e: e[1] / judged, head="of all judged", reads=lambda share: percent(share, 1)),
        Column("asserts", str, of=lambda e: known.get(e[0], unknown).asserts, head="it asserts"),
        Column("usual", str, of=lambda e: known.get(e[0], unknown).cause or "", head="what usually breaks it"),
    ]
    return Table.of(columns, snapshot.causes.items(), ["The first check that failed. Choose one to see a trial."])


def in_words(snapshot: Snapshot, number: int) -> tuple[str, ...]:
    """A trial in words."""
    store, name = snapshot.store, snapshot.name
    return snapshot.once(f"words {number}", lambda: tuple(trial_words(store, queries.trial(store, name, number))))


def by_cause(trials: tuple[ListedTrial, ...]) -> dict[str, int]:
    """The last trial of each cause."""
    return {cause: each.number for each in trials if (cause := each.cause) is not None}


# The pages ------------------------------------------------------------------------------------------------------------


class Section(NamedTuple):
    """A page: its name in addresses, what leads to it, and what it shows; of a cause of rejects, where one is asked."""

    key: str
    title: str
    parts: Callable[[Snapshot, Links, str | None], Sequence[Part]]


SECTIONS = (
    Section("rejects", "Why rejected", rejects),
    Section("best", "Best so far", lambda of, to, _: history(of, to) or (Lead("No trial was recorded yet."),)),
    Section("leaderboard", "Leaderboard", lambda of, to, _: (leaderboard(of, to),)),
    Section("problems", "Problems", lambda of, *_: (Panel("Problems by variants", problems_table(of)),)),
    Section("costs", "Costs", lambda of, *_: (Panel("What it cost", costs_table(of.costs)),)),
)
TABS = (("variants", "Variants"), *((each.key, each.title) for each in SECTIONS), ("beliefs", "Beliefs"))
"""What leads to each page of a study but the first, those included that a script draws or that take long to find."""


def overview(snapshot: Snapshot, links: Links) -> tuple[Part, ...]:
    """What the first page has beside the answers: the best so far, the leaders, why variants were rejected."""
    return (*history(snapshot, links), leaderboard(snapshot, links, 8), *rejects(snapshot, links))


def believed(found: StudyBeliefs, newer: str = "") -> tuple[Part, ...]:
    """What a study has shown of its space. `newer`: what is said of variants that the beliefs do not know yet."""
    after = f"After {found.judged:,} judged variants of {found.points:,} valid points."
    panels = (Panel(table.above[0], table) for table in beliefs_text.tables(found))
    return Lead(f"{after} {newer}".rstrip()), *panels, Passage("in-words", "In words", tuple(beliefs_text.lines(found)))
