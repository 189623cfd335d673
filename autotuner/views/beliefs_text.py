"""What a study has shown: what is believed as tables, the rest in words."""

from collections.abc import Sequence

from autotuner.values.ratio import UNCONFIRMED, quoted
from autotuner.views.beliefs import BranchStanding, Room, StudyBeliefs
from autotuner.views.surrogate_beliefs import Belief, Beliefs, PairEffect, ParameterEffect, Trust, ValueEffect
from autotuner.views.table import Column, Table, points_column
from autotuner.views.words import counted, counts_words, micros, percent, point, ratio

SHOWN = 0.01
"""Smallest share of the variance that is worth a line, 0..1."""
MOST = 14
"""Shares, and parameters, that are listed and drawn."""
TELLING = 1e-4
"""Smallest expected improvement that is worth a line, of ln(t_variant / t_baseline)."""
WEAK = 0.3
"""Rank correlation below which the beliefs hardly put points in order."""


def _most(effect: ParameterEffect | PairEffect) -> float:
    """The larger of its two shares."""
    return max(effect.share, effect.fast_share)


SHARES: list[Column[ParameterEffect | PairEffect]] = [
    Column(
        "parameter", str, of=lambda e: e.parameter if isinstance(e, ParameterEffect) else " and ".join(e.parameters)
    ),
    Column("share", float, head="of the variance", reads=lambda share: percent(share, 1)),
    Column("fast_share", float, head="in the fastest quarter", reads=lambda share: percent(share, 1)),
]


def shares_table(beliefs: Beliefs) -> Table:
    """The share of the believed speed's variance that each explains alone, and two together beyond each alone."""
    every: tuple[ParameterEffect | PairEffect, ...] = (*beliefs.parameters, *beliefs.pairs)
    found = sorted((each for each in every if _most(each) >= SHOWN), key=lambda each: -_most(each))[:MOST]
    hardly = [each.parameter for each in beliefs.parameters if _most(each) < SHOWN]
    notes = [f"Hardly: {', '.join(hardly)}."] if hardly else []
    if not any(isinstance(each, PairEffect) for each in found):
        notes.append("No two parameters interact noticeably.")
    return Table.of(SHARES, found, notes, above=["What matters: the share of the variance of the believed speed"])


EFFECTS: list[Column[tuple[ParameterEffect, ValueEffect]]] = [
    Column("value", str, of=lambda e: f"{e[0].parameter}={e[1].value}"),
    Column(
        "slower", float, of=lambda e: e[1].slower, head="slower than the best", reads=lambda share: percent(share, 1)
    ),
    Column("speedup", float, of=lambda e: e[1].speedup, head=f"mean speedup, {UNCONFIRMED}", reads=ratio),
    Column("best", float, of=lambda e: e[1].best, head=f"of its fastest point, {UNCONFIRMED}", reads=ratio),
    Column("judged", int, of=lambda e: e[1].judged),
    Column("points", int, of=lambda e: e[1].points),
]


def effects_table(beliefs: Beliefs) -> Table:
    """Every value of the parameters that matter, by the mean over all valid points with it, the best first."""
    matter = [each for each in beliefs.parameters if _most(each) >= SHOWN][:MOST]
    found = [(parameter, value) for parameter in matter for value in parameter.values]
    return Table.of(EFFECTS, found, above=["What each value costs, by the mean over all valid points with it"])


PROMISING: list[Column[Belief]] = [
    Column(
        "gain", float, head="expected improvement", reads=lambda gain: percent(gain, 2), none="believed the fastest"
    ),
    Column("speedup", float, head=f"believed, {UNCONFIRMED}", reads=ratio),
    Column(
        "interval",
        tuple[float, float],
        of=lambda e: (e.low, e.high),
        head="95 % interval",
        reads=lambda e: f"{e[0]:.3f} to {e[1]:.3f}",
    ),
    Column("judged", bool, reads=lambda judged: "yes" if judged else "no"),
    points_column("point"),
]


def promising_table(beliefs: Beliefs) -> Table:
    """The point that is believed to be the fastest, and what is left to find."""
    left = [each for each in beliefs.promising if each.gain and each.gain >= TELLING]
    return Table.of(PROMISING, [beliefs.best, *left], above=["What is left to find"])


def tables(study: StudyBeliefs) -> tuple[Table, ...]:
    """What is believed; nothing where too few trials were measured."""
    beliefs = study.beliefs
    return () if beliefs is None else (shares_table(beliefs), effects_table(beliefs), promising_table(beliefs))


def lines(study: StudyBeliefs) -> list[str]:
    """The rest for a person; a line that begins with blanks belongs to the one above that does not."""
    head = (
        f"{study.study}: {study.judged} of {study.points:,} valid points judged: {study.measured} measured,"
        f" {sum(study.rejected.values())} rejected."
    )
    built = _rejects(study)
    if (beliefs := study.beliefs) is not None:
        return [head, *branch_lines(study.branches), *built, *_left(study, beliefs), _trust(beliefs.trust)]
    remedy = "go on with `autotuner tune`" if study.left else "the space has no more"
    missing = (
        f"Too few measured trials to say what matters or what is left to find: {study.measured}, and"
        f" {study.enough} are needed; {remedy}."
    )
    return [head, *branch_lines(study.branches), missing, *built]


def branch_lines(branches: Sequence[BranchStanding]) -> list[str]:
    """What the search did with each of several branches, the best first."""
    if len(branches) < 2:
        return []
    ranked = sorted(branches, key=lambda each: -(each.best or 0.0))
    found = []
    for each in ranked:
        best = f"best {quoted(each.best, each.confirmed)}" if each.best is not None else "none measured"
        if (times := each.behind_bound) is not None:
            best += f", {round(times, 1 if times < 10 else None)} times its bound"
        found.append(
            f"  {each.impl}: {each.judged} of {counted(each.points, 'point')} judged, {best}"
            + f"; {each.left}" * bool(each.left)
        )
    return ["Branches:", *found]


def room_lines(rooms: Sequence[Room]) -> list[str]:
    """What there is to be had beyond the baselines, and what it would take."""
    return [
        f"More than {each.us / each.bound_us:.2f}x is not to be had at {each.problem}: {each.baseline} took"
        f" {micros(each.us)} us, and this device needs {micros(each.bound_us)} us at least. Up to that it takes another"
        " implementation, or other values in a space of your own."
        for each in rooms
    ]


def _rejects(study: StudyBeliefs) -> list[str]:
    if not study.rejected:
        return ["Nothing was rejected."]
    found = [
        f"  {point(each.where)}: {each.rejected} of {each.judged} rejected: {counts_words(each.codes)}"
        for each in study.rejects
    ]
    if study.elsewhere:
        found.append(f"  {'elsewhere' if found else 'here and there'}: {counts_words(study.elsewhere)}")
    return ["What is rejected where:", *found]


def _left(study: StudyBeliefs, beliefs: Beliefs) -> list[str]:
    if not beliefs.promising:
        return ["Every valid point was judged: nothing is left."]
    found = f"Not judged: {counted(study.left, 'point')}."
    if beliefs.looked_at != study.points:
        found += f" What is believed is of {beliefs.looked_at:,} by lot and of the best ones' neighbours."
    if all(each.gain is None or each.gain < TELLING for each in beliefs.promising):
        found += f" None is expected to improve by {TELLING:.2%}."
    head, is_below = ("Converged", "is below") if beliefs.converged else ("Not converged", "is not below")
    end = f"{head}: the largest expected improvement, {beliefs.gain:.2%}, {is_below} the tie band of {study.tie:.2%}."
    return [found, end]


def _trust(trust: Trust | None) -> str:
    if trust is None:
        return "How far to trust this: unknown, too few of the later trials were measured; go on with `autotuner tune`."
    order = "no order to compare" if trust.rank_correlation is None else f"{trust.rank_correlation:+.2f}"
    weak = trust.rank_correlation is not None and trust.rank_correlation < WEAK
    return (
        f"How far to trust this: learned from the first {trust.learned} trials, the {trust.checked} measured after them"
        f" lay within their 95 % interval in {trust.within:.0%} of the cases; rank correlation {order}"
        f"{': which of them is faster was hardly known' if weak else ''}."
    )
