"""Which parameters reached the program, by what a study has built."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Literal

import numpy as np
from pydantic import Field

from autotuner.spaces.space import Space
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
    programs = trials.programs
    impls, of = space.values["IMPL"], space.rows[:, space.parameters.index("IMPL")]
    found = []
    for place, impl in enumerate(impls):
        rows = space.rows[of == place]
        built = [point for point in programs if of[point] == place]
        for column, name in enumerate(space.parameters):
            values = rows[:, column]
            if name != "IMPL" and len(np.unique(values[values >= 0])) > 1:
                found.append(_knob(space, str(impl), column, {point: programs[point] for point in built}))
    return tuple(found)


def _knob(space: Space, impl: str, column: int, programs: dict[int, str]) -> BuiltKnob:
    alike: Counter[tuple[int, int]] = Counter()
    apart: Counter[tuple[int, int]] = Counter()
    groups: dict[bytes, list[int]] = {}
    for point in programs:
        row = space.rows[point]
        if row[column] >= 0:
            groups.setdefault(np.delete(row, column).tobytes(), []).append(point)
    for group in groups.values():
        for one, other in combinations(sorted(group), 2):
            pair = int(space.rows[one, column]), int(space.rows[other, column])
            (alike if programs[one] == programs[other] else apart)[pair] += 1
    name = space.parameters[column]
    values = space.values[name]
    never_apart = tuple((values[a], values[b], n) for (a, b), n in sorted(alike.items()) if not apart[a, b])
    state: Literal["alive", "dead", "same values", "not seen"] = "same values" if never_apart else "alive"
    if not apart:
        state = "dead" if alike else "not seen"
    return BuiltKnob(
        impl=impl, parameter=name, state=state, same=alike.total(), different=apart.total(), alike=never_apart
    )
