"""Why variants were rejected: the causes, the values with which they come, and one trial in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from autotuner.store import ListedTrial, queries
from autotuner.tuning.finals import standings
from autotuner.values.variant import Value
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Svg
from autotuner.views.meanings import meanings
from autotuner.views.snapshot import Snapshot, cause_of
from autotuner.views.table import Table, linked
from autotuner.views.trial_words import trial_words
from autotuner.views.words import kind, percent

SHOWN = 14
"""Causes, and values, that a figure shows; the tables have all."""
LEAST = 3
"""Fewest rejects of a value that is shown."""
ROW, LEFT, WIDTH, NARROW = 26, 190, 860, 440
CLEARLY = 0.2
"""Of the way from the share of all variants to every variant: how far above it a value's share of rejects must be."""


class OneTrial(NamedTuple):
    """A rejected trial in words."""

    number: int
    cause: str
    lines: tuple[str, ...]
    sooner: int | None
    later: int | None
    of: int


class Rejects(NamedTuple):
    """The page."""

    rejected: int
    judged: int
    causes: Figure
    values: Figure | None
    example: OneTrial | None
    chosen: str | None


def rejects(
    snapshot: Snapshot, links: Links, chosen: str | None = None, number: int | None = None, narrow: bool = False
) -> Rejects:
    """`chosen`: the cause that is looked at, else the most frequent; `number`: the trial that is put into words;
    `narrow`: for half a page, without the values."""
    causes = snapshot.causes
    cause = chosen if chosen in causes else next(iter(causes), None)
    return Rejects(
        rejected=sum(causes.values()),
        judged=snapshot.judged,
        causes=_causes(snapshot, links, cause, NARROW if narrow else WIDTH),
        values=None if narrow else _values(snapshot),
        example=None if cause is None else _example(snapshot, cause, number),
        chosen=cause,
    )


def _causes(snapshot: Snapshot, links: Links, chosen: str | None, width: float) -> Figure:
    known, causes = meanings(snapshot.op), snapshot.causes
    kinds = {cause_of(each): kind(each) for each in snapshot.trials}
    shown = list(causes.items())[:SHOWN]
    most = max(causes.values(), default=1)
    svg = Svg(width, ROW * max(1, len(shown)) + 8, f"Causes of {sum(causes.values())} rejects, the most frequent first")
    for place, (code, count) in enumerate(shown):
        y, length = ROW * place + 6, (width - LEFT - 130) * count / most
        cause = known[code].asserts if code in known else ""

        def bar(code: str = code, count: int = count, y: float = y, length: float = length, cause: str = cause) -> None:
            svg.text(LEFT - 26, y + 13, code, "label strong" if code == chosen else "label", "end")
            svg.mark(kinds.get(code, "wrong"), LEFT - 12, y + 9)
            svg.add("rect", x=LEFT, y=y, width=length, height=18, rx=3, class_=f"bar {kinds.get(code)}", title=cause)
            share = percent(count / max(1, snapshot.judged), 1)
            svg.text(LEFT + length + 8, y + 13, f"{count:,} ({share})", "tick")

        svg.link(links.cause(snapshot.name, code), bar)
    rows = tuple(
        (
            linked(code, links.cause(snapshot.name, code)),
            f"{count:,}",
            percent(count / max(1, snapshot.judged), 1),
            known[code].asserts if code in known else "",
            (known[code].cause or "") if code in known else "",
        )
        for code, count in causes.items()
    )
    titles = ("check", "rejects", "of all judged", "it asserts", "what usually breaks it")
    grid = Table.plain(titles, rows, (1, 2))
    return Figure("causes", "Causes", "The first check that failed. Choose one to see a trial.", svg.render(), grid)


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


def _values(snapshot: Snapshot) -> Figure:
    every = counts(snapshot)
    usual = sum(snapshot.causes.values()) / max(1, snapshot.judged)
    shown = [each for each in every if each.rejected >= LEAST and each.share > usual + CLEARLY * (1 - usual)][:SHOWN]
    svg = Svg(WIDTH, ROW * max(1, len(shown)) + 30, "The share of rejects of the values with which they gather")
    length = WIDTH - LEFT - 150
    for place, each in enumerate(shown):
        y = ROW * place + 6
        svg.text(LEFT - 8, y + 13, f"{each.parameter}={each.value}", "label", "end")
        svg.add("rect", x=LEFT, y=y, width=length, height=18, rx=3, class_="bar rest")
        title = ", ".join(f"{count} {code}" for code, count in each.codes.most_common(4))
        svg.add("rect", x=LEFT, y=y, width=length * each.share, height=18, rx=3, class_="bar wrong", title=title)
        svg.text(LEFT + length + 8, y + 13, f"{each.rejected:,} of {each.judged:,}, {percent(each.share)}", "tick")
    if shown:
        x = LEFT + length * usual
        svg.line(x, 2, x, ROW * len(shown) + 6, "rule strong")
        svg.text(x, ROW * len(shown) + 22, f"all values: {percent(usual)}", "tick", "middle")
    else:
        svg.text(LEFT, 20, "No value has clearly more rejects than the others.", "label")
    rows = tuple(
        (
            f"{each.parameter}={each.value}",
            f"{each.judged:,}",
            f"{each.rejected:,}",
            percent(each.share, 1),
            ", ".join(f"{count} {code}" for code, count in each.codes.most_common()),
        )
        for each in every
    )
    grid = Table.plain(("value", "judged", "rejected", "share", "causes"), rows, frozenset({1, 2, 3}))
    note = "The values that come with clearly more rejects than all variants have, the most rejects first."
    return Figure("values", "Values", note, svg.render(), grid)


def _example(snapshot: Snapshot, cause: str, wanted: int | None) -> OneTrial | None:
    numbers = sorted(each.number for each in snapshot.trials if cause_of(each) == cause)
    if not numbers:
        return None
    number = wanted if wanted in numbers else numbers[-1]
    place = numbers.index(number)
    return OneTrial(
        number=number,
        cause=cause,
        lines=words(snapshot, number),
        sooner=numbers[place - 1] if place else None,
        later=numbers[place + 1] if place + 1 < len(numbers) else None,
        of=len(numbers),
    )


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
