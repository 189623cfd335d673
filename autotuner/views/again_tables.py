"""What was timed or judged again, for a person: a variant beside its opponent, an earlier export beside today's best, a
study that was done again elsewhere."""

from collections.abc import Sequence

from autotuner.tuning.race_again import Race
from autotuner.tuning.regression import BaselineSince, Regression, findings
from autotuner.tuning.reproduced import Reproduced
from autotuner.values.ratio import Speedup
from autotuner.views.table import Column, Table
from autotuner.views.words import ends, over_words

RACE: list[Column[Race]] = [
    Column("variant", str, of=lambda e: str(e.variant)),
    Column("against", str),
    Column("speedup", float, "t_opponent / t_variant", "speedup.mid", reads=lambda found: f"{found:.4f}x"),
    Column("interval", Speedup, "with its ends", "speedup", "95 % interval", lambda e: ends(e, "blocks")),
    Column("blocks", int),
    Column("winner", str, "null: neither is faster by more than a tie", none="none, they tie"),
]
"""A variant that was timed again."""


def race_table(race: Race) -> Table:
    """A variant that was timed again, beside its opponent."""
    over = over_words(len(race.problems), race.objective)
    return Table.of(RACE, [race], [over] if over else [], title=lambda e: f"{e.study}, trial {e.trial}, timed again")


def reproduced_table(levels: Sequence[Reproduced], torch: tuple[str, str]) -> Table:
    """What of a study was reproduced, a row a level; `torch`: its versions then and now."""
    columns = [Column[Reproduced]("level", str), Column[Reproduced]("found", str), Column[Reproduced]("detail", str)]
    return Table.of(columns, levels, above=["torch {} then, {} now.".format(*torch)])


BASELINES: list[Column[BaselineSince]] = [
    Column("problem", str, of=lambda e: str(e.problem)),
    Column("then", str, head="baseline then"),
    Column("now", str),
    Column("confirmed", Speedup, "over the exported binary, then", head="its time then", reads=str, none="no finals"),
    Column("today", Speedup, "over the exported binary, now", head="its time now", reads=str),
    Column("moved", bool, reads=lambda moved: "yes" if moved else "no"),
]
"""What a problem's baseline takes over the exported binary, which has not changed."""


def regression_table(found: Regression) -> Table:
    """The baselines, then and now; below them what is slower, in sentences."""
    who = "the same build" if found.same_build else f"trial {found.trial}, {found.variant}"
    race = f"Exported {found.exported_at:%Y-%m-%d}: trial {found.exported_trial}, {found.exported}. Today: {who}."
    return Table.of(BASELINES, found.baselines, findings(found), above=[race])
