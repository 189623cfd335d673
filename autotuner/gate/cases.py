"""The case matrix of the gate: the op's shapes and distributions, at lengths that the artifact serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotuner.forge.family import Claims
from autotuner.gate.bench import Neighbours
from autotuner.ops import op_of
from autotuner.ops.op import OpCase
from autotuner.values.model import Model
from autotuner.values.problem import Problem, Shape

REFUSED = 4
"""Problems beside those that an artifact serves on which it must refuse to answer, at most."""


class Case(Model):
    """One input to judge a variant on; the compile-time part of the problem is the artifact's."""

    name: str
    problem: Problem
    distribution: str


def measured(problem: Problem) -> Case:
    """The one on whose inputs a problem is timed."""
    return Case(name="measured", problem=problem, distribution=op_of(problem).ordinary)


class Matrix:
    """The cases for artifacts compiled for one problem's compile-time part, at lengths that the artifact serves.

    With `fixed`, lengths by the name of their macro, it serves no others: every case then has these. What `claims` say
    that it does not serve is replaced by the nearest lengths that it does.
    """

    def __init__(self, like: Problem, fixed: dict[str, int] | None = None, claims: Claims | None = None) -> None:
        self._like, self._fixed, self.claims = like, fixed or {}, claims or Claims()
        self.op = op_of(like)

    def _fitted(self, shape: Shape) -> Problem:
        """Of this shape, but for lengths that are compiled in."""
        lengths = {name.lower(): value for name, value in self._fixed.items()}
        return self._like.sized(shape).model_copy(update=lengths)

    def case(self, shape: Shape, distribution: str | None = None, label: str = "") -> Case:
        """A case of this shape, or of the nearest lengths that the artifact serves."""
        wanted = self._fitted(shape)
        served = self.claims.nearest(wanted) or self._with_tuned_lengths(wanted)
        drawn = distribution or self.op.ordinary
        sizes = "x".join(map(str, served.short_shape))
        return Case(name=f"{label}{sizes} {drawn}", problem=served, distribution=drawn)

    def _with_tuned_lengths(self, problem: Problem) -> Problem:
        return problem.model_copy(update={name: getattr(self._like, name) for name in problem.LENGTHS})

    def neighbours(self, shape: Shape) -> Neighbours:
        """What runs between launches, of this shape; for the variant of the nearest lengths that it serves."""
        problem = self._like.sized(shape)
        return Neighbours(problem, None if self._fixed else self.claims.nearest(problem))

    def quick(self) -> tuple[Case, ...]:
        """Few cases that show nearly every mistake that the whole matrix shows."""
        return self._wanted(self.op.cases.quick(self._like))

    def full(self, tile: tuple[int, ...]) -> tuple[Case, ...]:
        """The rest of the matrix, with lengths around the variant's own tile, and the family's own cases."""
        own = (OpCase(case.shape, case.distribution, "own ") for case in self.claims.policy.cases)
        return self._wanted((*self.op.cases.full(self._like, tile), *own))

    def _wanted(self, cases: Iterable[OpCase]) -> tuple[Case, ...]:
        """Each case once, without the distributions that the family's policy leaves out."""
        kept = (
            self.case(each.shape, each.distribution, each.label)
            for each in cases
            if each.distribution not in self.claims.policy.omitted
        )
        return tuple({(case.problem, case.distribution): case for case in kept}.values())

    @property
    def bounded(self) -> bool:
        """True when the artifact must refuse some lengths."""
        return bool(self.outside())

    def outside(self) -> tuple[Problem, ...]:
        """Problems beside those that the artifact serves, REFUSED at most: it must refuse them."""
        if self._fixed:
            return tuple(self._beside(self._fitted(self.op.cases.smoke)))
        tile = self.op.cases.tile({}, {})
        cases = (*self.op.cases.quick(self._like), *self.op.cases.full(self._like, tile))
        refused = (problem for case in cases if not self.claims.serve(problem := self._like.sized(case.shape)))
        return tuple(dict.fromkeys(refused))[:REFUSED]

    def _beside(self, problem: Problem) -> Iterator[Problem]:
        """One length more in each, and one less in the first."""
        for name, more in (*((name, 1) for name in problem.LENGTHS), (problem.LENGTHS[0], -1)):
            length = getattr(problem, name) + more
            if length > 0:
                yield problem.model_copy(update={name: length})


def served(problems: Iterable[Problem], claims: Claims) -> tuple[Problem, ...]:
    """Each problem, or the one of the nearest lengths that the variant serves."""
    found = (claims.nearest(problem) for problem in problems)
    return tuple(dict.fromkeys(problem for problem in found if problem is not None))
