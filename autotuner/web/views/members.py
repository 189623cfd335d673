"""A sweep set: how much of the budget each member had, and what it found."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.jobs.members import MemberProgress
from autotuner.web.figures.figure import Figure, Grid, Link
from autotuner.web.figures.svg import Svg
from autotuner.web.links import Links
from autotuner.web.words import cut, ratio

WIDTH, LEFT, ROW = 860, 270, 30


def members(found: Sequence[MemberProgress], budget: int, links: Links) -> Figure:
    """A bar a member. `budget`: trials of the whole set."""
    equal = budget / len(found)
    most = max([1.2 * equal, *(each.judged for each in found)])
    svg = Svg(WIDTH, ROW * len(found) + 34, "Variants judged by each member of the set")
    length = WIDTH - LEFT - 150
    x, bottom = LEFT + length * equal / most, ROW * len(found) + 8
    for place, each in enumerate(found):
        wide = length * each.judged / most
        svg.add("rect", x=LEFT, y=ROW * place + 6, width=wide, height=18, rx=3, class_="bar")
    svg.line(x, 2, x, bottom, "rule strong")
    svg.text(x, bottom + 16, f"an equal share: {equal:,.0f}", "tick", "middle")
    for place, each in enumerate(found):
        y = ROW * place + 20

        def names(each: MemberProgress = each, y: float = y) -> None:
            svg.text(LEFT - 12, y, cut("; ".join(each.problems), 38), "label", "end")
            said = "not begun" if each.study is None else f"{each.judged:,} judged, {_best(each)}"
            svg.text(LEFT + length * each.judged / most + 8, y, said, "tick halo")

        svg.link(None if each.study is None else links.study(each.study), names)
    rows = tuple(
        (
            "; ".join(each.problems),
            f"{each.weight:g}",
            f"{each.judged:,}",
            _best(each),
            "not begun" if each.study is None else Link(each.study, links.study(each.study)),
        )
        for each in found
    )
    note = (
        "Variants judged, and the best of each: confirmed, or with ~ as the search has it. Members begin one after"
        " another; then turns go to the one that promises the largest improvement."
    )
    grid = Grid(("problems", "weight", "judged", "best", "study"), rows, frozenset({1, 2, 3}))
    return Figure("members", "Members of the set", note, svg.render(), grid)


def _best(each: MemberProgress) -> str:
    if each.best_speedup is None:
        return "-"
    return f"{'' if each.best_confirmed else '~'}{ratio(each.best_speedup)}"
