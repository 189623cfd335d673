"""Dead knobs: parameters, or pairs of values, that never change the program.

A space with one proposes the same binary again and again, and its size says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autotuner.spaces.space import Space
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Value
from autotuner.values.verdict import Fault

Builder = Callable[[Sequence[int]], list[Artifact | Fault]]
"""Builds the variants at these points of the space, in order."""

PLACES = 3
"""Points of the space at which a parameter must make no difference before it is called dead."""

ROUNDS = 4 * PLACES
"""Points that are tried at most: where a build fails, nothing is learned."""


class Knob(Model):
    """What was found of one parameter of one implementation."""

    impl: str
    parameter: str
    state: Literal["alive", "dead", "same values", "untested"]
    detail: str


class _Trial:
    """One parameter of one implementation: places where it alone varies, and which values were seen to differ."""

    def __init__(self, space: Space, impl: str, parameter: str, draw: np.random.Generator) -> None:
        self.impl, self.parameter = impl, parameter
        self._values = space.values[parameter]
        self._column = space.parameters.index(parameter)
        self._groups = _groups(space, impl, self._column, draw)
        self._told_apart: set[frozenset[int]] = set()
        self._together: set[frozenset[int]] = set()
        self._faults: list[str] = []
        self._places = 0

    @property
    def settled(self) -> bool:
        """Every pair of values that was built together made different programs, or enough places were tried."""
        return self._places >= PLACES or (bool(self._together) and self._together <= self._told_apart)

    def next(self) -> list[int]:
        """Points that differ in this parameter alone; none when there are no more."""
        return self._groups.pop(0) if self._groups else []

    def learn(self, space: Space, points: Sequence[int], built: Sequence[Artifact | Fault]) -> None:
        """Takes in what the builder made of one `next`."""
        hashes = {}
        for point, made in zip(points, built, strict=True):
            if isinstance(made, Fault):
                self._faults.append(made.detail.splitlines()[0])
            else:
                hashes[int(space.rows[point, self._column])] = made.program_hash
        self._places += len(hashes) > 1
        for one, other in combinations(hashes, 2):
            pair = frozenset((one, other))
            self._together.add(pair)
            if hashes[one] != hashes[other]:
                self._told_apart.add(pair)

    def finding(self) -> Knob:
        """The verdict on what was learned."""

        def knob(state: Literal["alive", "dead", "same values", "untested"], detail: str) -> Knob:
            return Knob(impl=self.impl, parameter=self.parameter, state=state, detail=detail)

        if not self._together:
            why = f"its builds failed: {self._faults[0]}" if self._faults else "no two valid points differ in it alone"
            return knob("untested", why)
        if not self._told_apart:
            return knob("dead", f"{len(self._together)} pairs of values made the same program wherever they were tried")
        alike = sorted(sorted(pair) for pair in self._together - self._told_apart)
        if alike:
            pairs = ", ".join(f"{self._values[a]} and {self._values[b]}" for a, b in alike)
            return knob("same values", f"the same program wherever they were tried: {pairs}")
        return knob("alive", f"{len(self._told_apart)} pairs of values made different programs")


def _groups(space: Space, impl: str, column: int, draw: np.random.Generator) -> list[list[int]]:
    """Sets of points of the implementation that differ in one column alone: the largest first, in random order."""
    chosen = np.flatnonzero(_of_implementation(space, impl) & (space.rows[:, column] >= 0))
    others = np.delete(space.rows[chosen], column, axis=1)
    _, group_of, sizes = np.unique(others, axis=0, return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(sizes > 1)
    order = candidates[np.lexsort((draw.random(len(candidates)), -sizes[candidates]))][:ROUNDS]
    return [chosen[group_of.ravel() == group].tolist() for group in order]


def _of_implementation(space: Space, impl: str) -> NDArray[np.bool_]:
    place = space.values["IMPL"].index(impl)
    mask: NDArray[np.bool_] = space.rows[:, space.parameters.index("IMPL")] == place
    return mask


def _knobs(space: Space) -> Iterator[tuple[str, str]]:
    """Each implementation with each parameter that has several values there."""
    impls: Sequence[Value] = space.values["IMPL"]
    for impl in impls:
        rows = space.rows[_of_implementation(space, str(impl))]
        for column, name in enumerate(space.parameters):
            if name != "IMPL" and len(rows) and len(np.unique(rows[:, column])) > 1:
                yield str(impl), name


def diagnose(space: Space, builder: Builder, seed: int = 0) -> list[Knob]:
    """Every knob of the space, in its order, with what was found of it."""
    draw = np.random.default_rng(seed)
    trials = [_Trial(space, impl, name, draw) for impl, name in _knobs(space)]
    for _ in range(ROUNDS):
        asked = [(trial, points) for trial in trials if not trial.settled and (points := trial.next())]
        points = sorted({point for _, group in asked for point in group})
        made = dict(zip(points, builder(points), strict=True))
        for trial, group in asked:
            trial.learn(space, group, [made[point] for point in group])
    return [trial.finding() for trial in trials]
