"""Dead knobs: parameters, or pairs of values, that never change the program.

A space with one proposes the same binary again and again, and its size says nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from autotuner.spaces.space import BranchPoints, Space
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact
from autotuner.values.verdict import Fault

Builder = Callable[[Sequence[int]], list[Artifact | Fault]]
"""Builds the variants at these points of the space, in order."""

PLACES = 3
"""Points of the space at which a parameter must make no difference before it is called dead."""

ROUNDS = 4 * PLACES
"""Points that are tried at most: where a build fails, nothing is learned."""

State = Literal["alive", "dead", "same values", "untested", "unbuilt"]


class Knob(Model):
    """What was found of one parameter of one implementation."""

    impl: str
    parameter: str
    state: State
    detail: str


def unbuilt(knobs: Sequence[Knob]) -> list[str]:
    """The implementations of which nothing could be built."""
    states: dict[str, set[str]] = {}
    for knob in knobs:
        states.setdefault(knob.impl, set()).add(knob.state)
    return [impl for impl, found in states.items() if "unbuilt" in found and found <= {"unbuilt", "untested"}]


class _Trial:
    """One parameter of one implementation: places where it alone varies, and which values were seen to differ."""

    def __init__(self, branch: BranchPoints, first: int, parameter: str, draw: np.random.Generator) -> None:
        """`first`: the index in the space of the branch's first point."""
        self.impl, self.parameter = branch.impl, parameter
        self._branch, self._first = branch, first
        self._values = branch.values[parameter]
        self._column = branch.parameters.index(parameter)
        self._groups = _groups(branch, self._column, draw)
        self._told_apart: set[frozenset[int]] = set()
        self._together: set[frozenset[int]] = set()
        self._faults: list[str] = []
        self._places = 0

    @property
    def settled(self) -> bool:
        """Every pair of values that was built together made different programs, or enough places were tried."""
        return self._places >= PLACES or (bool(self._together) and self._together <= self._told_apart)

    def next(self) -> list[int]:
        """Points of the space that differ in this parameter alone; none when there are no more."""
        return [self._first + place for place in self._groups.pop(0)] if self._groups else []

    def learn(self, points: Sequence[int], built: Sequence[Artifact | Fault]) -> None:
        """Takes in what the builder made of one `next`."""
        hashes = {}
        for point, made in zip(points, built, strict=True):
            if isinstance(made, Fault):
                self._faults.append(made.detail.splitlines()[0])
            else:
                hashes[int(self._branch.rows[point - self._first, self._column])] = made.program_hash
        self._places += len(hashes) > 1
        for one, other in combinations(hashes, 2):
            pair = frozenset((one, other))
            self._together.add(pair)
            if hashes[one] != hashes[other]:
                self._told_apart.add(pair)

    def finding(self) -> Knob:
        """The verdict on what was learned."""

        def knob(state: State, detail: str) -> Knob:
            return Knob(impl=self.impl, parameter=self.parameter, state=state, detail=detail)

        if not self._together:
            if self._faults:
                return knob("unbuilt", f"its builds failed: {self._faults[0]}")
            return knob("untested", "no two valid points differ in it alone")
        if not self._told_apart:
            return knob("dead", f"{len(self._together)} pairs of values made the same program wherever they were tried")
        alike = sorted(sorted(pair) for pair in self._together - self._told_apart)
        if alike:
            pairs = ", ".join(f"{self._values[a]} and {self._values[b]}" for a, b in alike)
            return knob("same values", f"the same program wherever they were tried: {pairs}")
        return knob("alive", f"{len(self._told_apart)} pairs of values made different programs")


def _groups(branch: BranchPoints, column: int, draw: np.random.Generator) -> list[list[int]]:
    """Sets of points of the branch that differ in one column alone: the largest first, in random order."""
    others = np.delete(branch.rows, column, axis=1)
    _, group_of, sizes = np.unique(others, axis=0, return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(sizes > 1)
    order = candidates[np.lexsort((draw.random(len(candidates)), -sizes[candidates]))][:ROUNDS]
    return [np.flatnonzero(group_of.ravel() == group).tolist() for group in order]


def _trials(space: Space, draw: np.random.Generator) -> Iterator[_Trial]:
    """Each branch with each parameter that has several values there."""
    for place, branch in enumerate(space.branches):
        for column, name in enumerate(branch.parameters):
            if len(np.unique(branch.rows[:, column])) > 1:
                yield _Trial(branch, space.first[place], name, draw)


def diagnose(space: Space, builder: Builder, seed: int = 0) -> list[Knob]:
    """Every knob of the space, in its order, with what was found of it."""
    draw = np.random.default_rng(seed)
    trials = list(_trials(space, draw))
    for _ in range(ROUNDS):
        asked = [(trial, points) for trial in trials if not trial.settled and (points := trial.next())]
        points = sorted({point for _, group in asked for point in group})
        made = dict(zip(points, builder(points), strict=True))
        for trial, group in asked:
            trial.learn(group, [made[point] for point in group])
    return [trial.finding() for trial in trials]
