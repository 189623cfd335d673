"""Why variants were rejected: the causes, the values with which they come, and one trial in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from autotuner.store import ListedTrial, queries
from autotuner.tuning.finals import standings
from autotuner.values.variant import Value
from autotuner.views.causes import meanings
from autotuner.views.drawings.charts import WIDTH, Bar, bars
from autotuner.views.drawings.figure import Figure, Lead, Part, Passage
from autotuner.views.drawings.links import Links
from autotuner.views.snapshot import Snapshot, cause_of
from autotuner.views.table import Column, Table
from autotuner.views.trial_words import trial_words
from autotuner.views.words import counts_words, kind, percent

SHOWN = 14
"""Causes, and values, that a figure shows; the tables have all."""
LEAST = 3
"""Fewest rejects of a value that is shown."""
NARROW = 440
CLEARLY = 0.2
"""Of the way from the share of all variants to every variant: how far above it a value's share of rejects must be."""


def rejects(snapshot: Snapshot, links: Links, cause: str | None = None, trial: int | None = None) -> tuple[Part, ...]:
    """The causes, one trial in words and the values. `cause`: that is looked at, else the most frequent; `trial`: the
    one that is put into words, else the last."""
    rejected = sum(snapshot.causes.values())
    lead = Lead(f"{rejected:,} of {snapshot.judged:,} judged variants were rejected.")
    return lead, *few_rejects(snapshot, links, cause, trial, WIDTH), _values(snapshot)


def few_rejects(
    snapshot: Snapshot, links: Links, cause: str | None = None, trial: int | None = None, width: float = NARROW
) -> tuple[Part, ...]:
    """The causes and one trial in words."""
    chosen = cause if cause in snapshot.causes else next(iter(snapshot.causes), None)
    example = () if chosen is None else _example(snapshot, links, chosen, trial)
    return _causes(snapshot, links, chosen, width), *example


class Cause(NamedTuple):
    """A cause of rejects."""

    code: str
    rejects: int
    share: float
    """Of all judged variants."""
    asserts: str
    usual: str


def _causes(snapshot: Snapshot, links: Links, chosen: str | None, width: float) -> Figure:
    known, kinds = meanings(snapshot.op), {cause_of(each): kind(each) for each in snapshot.trials}
    found = [
        Cause(code, count, count / max(1, snapshot.judged), of.asserts if of else "", (of.cause or "") if of else "")
        for code, count in snapshot.causes.items()
        for of in [known.get(code)]
    ]
    rows = []
    for each in found[:SHOWN]:
        look, text = kinds.get(each.code, "wrong"), f"{each.rejects:,} ({percent(each.share, 1)})"
        href = links.cause(snapshot.name, each.code)
        bar = ((f"bar {look}", each.rejects),)
        rows.append(Bar(each.code, bar, text, each.asserts, None, look, href, each.code == chosen))
    drawing = bars(f"Causes of {sum(snapshot.causes.values())} rejects, the most frequent first", rows, width=width)
    columns: list[Column[Cause]] = [
        Column("check", str, of=lambda e: e.code, href=lambda e: links.cause(snapshot.name, e.code)),
        Column("rejects", int),
        Column("share", float, head="of all judged", reads=lambda share: percent(share, 1)),
        Column("asserts", str, head="it asserts"),
        Column("usual", str, head="what usually breaks it"),
    ]
    note, key = "The first check that failed. Choose one to see a trial.", ("wrong", "build", "died")
    return Figure("causes", "Causes", note, drawing, Table.of(columns, found), key if width == WIDTH else ())


class _Count(NamedTuple):
    parameter: str
    value: Value
    judged: int
    rejected: int
    codes: Counter[str]

    @property
    def share(self) -> float:
        return self.rejected / self.judged


def counts(snapshot: Snapshot) -> list[_Count]:
    """Of every value of every parameter that varies how many variants were judged and rejected, the clearest first: the
    one whose rejects are furthest above what all values together would lead to expect."""
    codes: dict[tuple[str, Value], Counter[str]] = defaultdict(Counter)
    tried: Counter[tuple[str, Value]] = Counter()
    values: dict[str, set[Value]] = defaultdict(set)
    for trial in snapshot.trials:
        if not trial.judged:
            continue
        cause = cause_of(trial)
        for key in trial.parameters.items():
            tried[key] += 1
            values[key[0]].add(key[1])
            if cause is not None:
                codes[key][cause] += 1
    usual = sum(snapshot.causes.values()) / max(1, snapshot.judged)
    found = [
        _Count(name, value, tried[name, value], codes[name, value].total(), codes[name, value])
        for name, value in tried
        if len(values[name]) > 1
    ]
    return sorted(found, key=lambda each: -(each.rejected - usual * each.judged))


VALUES: list[Column[_Count]] = [
    Column("value", str, of=lambda e: f"{e.parameter}={e.value}"),
    Column("judged", int),
    Column("rejected", int),
    Column("share", float, reads=lambda share: percent(share, 1)),
    Column("causes", dict[str, int], of=lambda e: dict(e.codes.most_common()), reads=lambda e: counts_words(e)),
]


def _values(snapshot: Snapshot) -> Figure:
    every = counts(snapshot)
    usual = sum(snapshot.causes.values()) / max(1, snapshot.judged)
    clear = [each for each in every if each.rejected >= LEAST and each.share > usual + CLEARLY * (1 - usual)][:SHOWN]
    rows = []
    for each in clear:
        text = f"{each.rejected:,} of {each.judged:,}, {percent(each.share)}"
        title = counts_words(dict(each.codes.most_common(4)))
        rows.append(Bar(f"{each.parameter}={each.value}", (("bar wrong", each.share),), text, title))
    rule = usual, f"all values: {percent(usual)}"
    drawing = bars("The share of rejects of the values with which they gather", rows, most=1.0, rule=rule)
    note = "The values that come with clearly more rejects than all variants have, the most rejects first."
    note += "" if clear else " No value has clearly more rejects than the others."
    return Figure("values", "Values", note, drawing if clear else None, Table.of(VALUES, every))


def _example(snapshot: Snapshot, links: Links, cause: str, wanted: int | None) -> tuple[Passage, ...]:
    """One of the trials that were rejected for a cause, and what leads to the ones before and after it."""
    numbers = sorted(each.number for each in snapshot.trials if cause_of(each) == cause)
    if not numbers:
        return ()
    place = numbers.index(wanted) if wanted in numbers else len(numbers) - 1
    number = numbers[place]
    beside = (("\N{LEFTWARDS ARROW} trial", numbers[max(0, place - 1)]), ("next: trial", [*numbers, number][place + 1]))
    steps = tuple(
        (f"{text} {other}", f"{links.study(snapshot.name, 'rejects', cause=cause, trial=other)}#one-trial", False)
        for text, other in beside
        if other != number and not links.saved
    )
    title = f"One of {len(numbers)} in words: trial"
    return (Passage("one-trial", title, words(snapshot, number), number, steps),)


def words(snapshot: Snapshot, number: int) -> tuple[str, ...]:
    """A trial in words."""

    def read() -> tuple[str, ...]:
        record = queries.trial(snapshot.store, snapshot.name, number)
        outcome = standings.proven(snapshot.store, record)
        confirmed = standings.every_confirmed(snapshot.store, snapshot.name).get(number)
        return tuple(trial_words(record, outcome, confirmed, snapshot.op))

    return snapshot.once(f"words {number}", read)


def by_cause(trials: tuple[ListedTrial, ...]) -> dict[str, int]:
    """The last trial of each cause."""
    return {cause: each.number for each in trials if (cause := cause_of(each)) is not None}
