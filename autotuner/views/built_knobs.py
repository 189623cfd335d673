"""Which parameters reached the program, by what a study has built."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Literal

import numpy as np
from pydantic import Field

from autotuner.spaces.space import BranchPoints, Space
from autotuner.values.model import Model
from autotuner.values.variant import Value
from autotuner.views.judged_points import JudgedPoints


class BuiltKnob(Model):
    """Whether a parameter of an implementation reached the program, by what the study built.

    A pair: two trials that differ in this parameter alone.
    """

    impl: str
    parameter: str
    state: Literal["alive", "dead", "same values", "not seen"]
    same: int = Field(description="pairs that were the same program")
    different: int
    alike: tuple[tuple[Value, Value, int], ...] = Field(
        description="two values that were the same program in each of a number of pairs, and never another"
    )


def built_knobs(space: Space, trials: JudgedPoints) -> tuple[BuiltKnob, ...]:
    """Each parameter of each implementation that has several values there."""
    found = []
    for place, branch in enumerate(space.branches):
        programs = {point - space.first[place]: program for point, program in trials.programs.items()}
        here = {point: program for point, program in programs.items() if 0 <= point < len(branch)}
        found += [
            _knob(branch, column, here)
            for column in range(len(branch.parameters))
            if len(np.unique(branch.rows[:, column])) > 1
        ]
    return tuple(found)


def _knob(branch: BranchPoints, column: int, programs: dict[int, str]) -> BuiltKnob:
    alike: Counter[tuple[int, int]] = Counter()
    apart: Counter[tuple[int, int]] = Counter()
    groups: dict[bytes, list[int]] = {}
    for point in programs:
        groups.setdefault(np.delete(branch.rows[point], column).tobytes(), []).append(point)
    for group in groups.values():
        for one, other in combinations(sorted(group), 2):
            pair = int(branch.rows[one, column]), int(branch.rows[other, column])
            (alike if programs[one] == programs[other] else apart)[pair] += 1
    name = branch.parameters[column]
    values = branch.values[name]
    never_apart = tuple((values[a], values[b], n) for (a, b), n in sorted(alike.items()) if not apart[a, b])
    state: Literal["alive", "dead", "same values", "not seen"] = "same values" if never_apart else "alive"
    if not apart:
        state = "dead" if alike else "not seen"
    return BuiltKnob(
        impl=branch.impl, parameter=name, state=state, same=alike.total(), different=apart.total(), alike=never_apart
    )
