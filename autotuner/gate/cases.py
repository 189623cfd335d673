"""The case matrix of the gate: the op's shapes and distributions, at lengths that the artifact serves."""

import math
import random
from collections.abc import Container, Iterable, Iterator, Sequence

from autotuner.forge.family import Claims
from autotuner.gate.bench import Neighbours
from autotuner.ops import op_of
from autotuner.ops.op import OpCase
from autotuner.values.model import Model
from autotuner.values.problem import Problem, Shape

LEAST = 3
"""Of a size that is drawn: smaller ones are among the other shapes."""
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


def demanding(problem: Problem, omitted: Container[str] = ()) -> Case:
    """The one on whose inputs it must be right afterwards: others, unless a family leaves that distribution out."""
    hard = op_of(problem).cases.demanding
    return measured(problem) if hard in omitted else Case(name="demanding", problem=problem, distribution=hard)


class Matrix:
    """The cases for artifacts compiled for one problem's compile-time part, at lengths that the artifact serves.

    With `fixed`, lengths by the name of their macro, it serves no others: every case then has these. What `claims` say
    that it does not serve is replaced by the nearest lengths that it does.
    """

    def __init__(
        self,
        like: Problem,
        fixed: dict[str, int] | None = None,
        claims: Claims | None = None,
        seeds: Sequence[int] = (),
    ) -> None:
        """`seeds`: secret ones, from each of which a shape is drawn: the others everybody knows."""
        self._like, self._fixed, self.claims, self._seeds = like, fixed or {}, claims or Claims(), seeds
        self.op = op_of(like)

    def _fitted(self, shape: Shape) -> Problem:
        """Of this shape, but for lengths that are compiled in."""
        lengths = {name.lower(): value for name, value in self._fixed.items()}
        return self._like.cased(shape).model_copy(update=lengths)

    def case(self, shape: Shape, distribution: str | None = None, label: str = "") -> Case:
        """A case of this shape, or of the nearest lengths that the artifact serves."""
        wanted = self._fitted(shape)
        tuned = {name: getattr(self._like, name) for name in wanted.LENGTHS}
        served = self.claims.nearest(wanted) or wanted.model_copy(update=tuned)
        drawn = distribution or self.op.ordinary
        sizes = "x".join(map(str, served.short_shape))
        return Case(name=f"{label}{sizes} {drawn}", problem=served, distribution=drawn)

    def neighbours(self, shape: Shape) -> Neighbours:
        """What runs between launches, of this shape; for the variant of the nearest lengths that it serves."""
        problem = self._like.cased(shape)
        return Neighbours(problem, None if self._fixed else self.claims.nearest(problem))

    def quick(self) -> tuple[Case, ...]:
        """Few cases that show nearly every mistake that the whole matrix shows."""
        return self._wanted(self.op.cases.quick(self._like))

    def full(self, tile: tuple[int, ...]) -> tuple[Case, ...]:
        """The rest of the matrix, with lengths around the variant's own tile, and the family's own cases."""
        own = (OpCase(case.shape, case.distribution, "own ") for case in self.claims.policy.cases)
        return self._wanted((*self.op.cases.full(self._like, tile), *own))

    def copied(self) -> Case:
        """The one on which the outputs are compared with those of the baselines."""
        shape = self.op.cases.copied
        return self.case(shape, label=next((c.label for c in self.op.cases.quick(self._like) if c.shape == shape), ""))

    def thorough(self, tile: tuple[int, ...], problems: Iterable[Problem]) -> Iterator[tuple[Case, int]]:
        """The whole matrix, and the tuned lengths with less work, with the places of two of the four seeds for each;
        the quick cases have had one."""
        for place, case in enumerate(self.quick()):
            yield case, place + 1
        shapes = [self.op.cases.tuned(problem) for problem in problems]
        tuned = [self.case(shape, label="tuned ") for shape in shapes]
        for place, case in enumerate((*self.full(tile), *tuned)):
            yield case, place
            yield case, place + 2
        most = [max(sizes) for sizes in zip(self.op.cases.copied, *shapes, strict=False)]
        limit = max(self._fitted(shape).flops for shape in (self.op.cases.copied, *shapes))
        for place, seed in enumerate(self._seeds):
            yield self._drawn(random.Random(seed), most, limit), place

    def _drawn(self, draw: random.Random, most: Sequence[int], flops: int) -> Case:
        """One of any sizes, evenly in proportion, and no more work than the others."""
        while True:
            shape = tuple(round(math.exp(draw.uniform(math.log(min(LEAST, size)), math.log(size)))) for size in most)
            if self._fitted(shape).flops <= flops:
                return self.case(shape, label="drawn ")

    def asked(self, tile: tuple[int, ...], problems: Sequence[Problem]) -> Iterator[tuple[Case, int]]:
        """What the checks ask for that every device has, with the places of the seeds, as far as it is worth knowing
        before they begin."""
        cases = self.op.cases
        yield from ((case, place) for place, case in enumerate(self.quick()))
        yield from self.thorough(tile, problems)
        yield from ((case, 0) for case in (self.case(cases.smoke), self.copied(), self.case(cases.soak, label="soak ")))
        for shape in (cases.invariant, cases.repeated, *(each.shape or cases.invariant for each in self.op.invariants)):
            yield self.case(shape, label="invariant "), 0
        yield from ((case, 0) for case in self.refused())

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
        refused = (problem for case in cases if not self.claims.serve(problem := self._like.cased(case.shape)))
        return tuple(dict.fromkeys(refused))[:REFUSED]

    def refused(self) -> Iterator[Case]:
        """The cases of these."""
        for problem in self.outside():
            yield Case(name=f"outside the domain {problem}", problem=problem, distribution=self.op.ordinary)

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
