"""Why variants were rejected: the causes, and one trial in words."""

from autotuner.store import ListedTrial, queries
from autotuner.tuning.finals import standings
from autotuner.values.verdict import Meaning
from autotuner.views.causes import meanings
from autotuner.views.drawings.figure import Lead, Panel, Part, Passage
from autotuner.views.drawings.links import Links
from autotuner.views.snapshot import Snapshot, cause_of
from autotuner.views.table import Column, Table
from autotuner.views.trial_words import trial_words
from autotuner.views.words import percent


def rejects(snapshot: Snapshot, links: Links, cause: str | None = None) -> tuple[Part, ...]:
    """The causes and the last trial of one in words. `cause`: that is looked at, else the most frequent."""
    rejected = sum(snapshot.causes.values())
    lead = Lead(f"{rejected:,} of {snapshot.judged:,} judged variants were rejected.")
    chosen = cause if cause in snapshot.causes else next(iter(snapshot.causes), None)
    example: list[Passage] = []
    if chosen is not None:
        number, title = by_cause(snapshot.trials)[chosen], f"The last one of {chosen} in words: trial"
        example.append(Passage("one-trial", title, words(snapshot, number), number))
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
