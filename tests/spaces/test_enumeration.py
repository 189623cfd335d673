"""The enumeration of spaces, their nearest points and neighbours, against brute force."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from autotuner.spaces import branch_points
from autotuner.spaces.expression import Expression
from autotuner.spaces.space import Space
from autotuner.values.errors import SpaceError
from autotuner.values.variant import Value
from tests.helpers.space_files import file_of

NAMES = ["IMPL", "A", "B", "C", "D"]


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], list[str]]:
    """Parameters and constraints of a small space; x may have more of its own."""
    count = draw(st.integers(1, 5))
    parameters: dict[str, Any] = {"IMPL": draw(st.sampled_from([["x"], ["x", "y"], ["x", "y", "z"]]))}
    for name in NAMES[1:count]:
        parameters[name] = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        parameters["x"] = {"E": draw(st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True))}
    constraints = draw(st.lists(st.sampled_from(_names(parameters)).flatmap(_test_of), max_size=4))
    if count > 2:
        pair = st.lists(st.sampled_from(_names(parameters)[1:]), min_size=2, max_size=2, unique=True)
        relation = st.sampled_from(
            ["{} + {} <= 9", "{} % {} != 1", "{} < {} or BIG", "{} * {} < LIMIT", "SEQ_Q % ({} + {}) > 1"]
        )
        constraints += draw(st.lists(st.builds(lambda text, names: text.format(*names), relation, pair), max_size=3))
    order = draw(st.permutations(list(parameters)))
    return {name: parameters[name] for name in order}, constraints


def _names(parameters: dict[str, Any]) -> list[str]:
    return [*(name for name in parameters if name != "x"), *parameters.get("x", ())]


def _test_of(name: str) -> st.SearchStrategy[str]:
    if name == "IMPL":
        return st.sampled_from(['IMPL == "x"', 'IMPL != "x"', 'IMPL in ("x",)', 'not IMPL == "x" or BIG'])
    return st.sampled_from([f"{name} > 2", f"{name} % 2 == 0", f"{name} * 3 < LIMIT", f"{name} != 5 and HEADS == 2"])


class BruteForce:
    """Every raw point of a space by itertools.product, each constraint by Python's own evaluation."""

    def __init__(self, parameters: dict[str, Any], constraints: list[str], facts: dict[str, Any]) -> None:
        self.own = parameters.get("x", {})
        self.values = {name: item for name, item in parameters.items() if name != "x"} | self.own
        self.facts = [{**facts, "SEQ_Q": length, "HEADS": 2} for length in (8, 12)]
        self.constraints = constraints
        self.raw = [point for impl in self.values["IMPL"] for point in self.points_of(impl)]
        self.broken = [[not self.holds(text, point) for text in constraints] for point in self.raw]
        self.valid = [point for point, broken in zip(self.raw, self.broken, strict=True) if not any(broken)]

    def points_of(self, impl: str) -> list[dict[str, Value]]:
        names = {n: v for n, v in self.values.items() if n != "IMPL" and (impl == "x" or n not in self.own)}
        return [{"IMPL": impl, **dict(zip(names, each, strict=True))} for each in itertools.product(*names.values())]

    def holds(self, text: str, point: dict[str, Value]) -> bool:
        if any(name in self.values and name not in point for name in Expression.parse(text).names):
            return True
        return all(eval(text, {**facts, **point}) for facts in self.facts)


def both(document: tuple[dict[str, Any], list[str]], facts: dict[str, Any]) -> tuple[BruteForce, Space | None]:
    brute = BruteForce(*document, facts)
    file = file_of(*document, default=(brute.valid or brute.raw)[0])
    if brute.valid:
        return brute, Space.enumerate(file, facts)
    with pytest.raises(SpaceError, match="valid point"):
        Space.enumerate(file, facts)
    return brute, None


FACT_SETS = st.fixed_dictionaries({"BIG": st.booleans(), "LIMIT": st.integers(1, 40)})


@settings(max_examples=60, deadline=None)
@given(documents(), FACT_SETS, st.sampled_from([1, 7, 1 << 20]))
def test_enumeration_agrees_with_brute_force(
    document: tuple[dict[str, Any], list[str]], facts: dict[str, Any], chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branch_points, "_CHUNK", chunk)
        brute, space = both(document, facts)
    if space is None:
        return
    points = [space.point(i) for i in range(len(space))]
    assert sorted(map(str, points)) == sorted(map(str, brute.valid))
    for branch in space.branches:
        assert branch.rows.tolist() == sorted(branch.rows.tolist())
        raw = brute.points_of(branch.impl)
        assert branch.raw_count == len(raw)
        assert sorted(branch.applied) == list(range(len(branch.branch.constraints)))
        assert branch.raw_count - sum(branch.removed) == len(branch)
        texts = [each.expression for each in branch.branch.constraints]
        broken = [[not brute.holds(text, point) for text in texts] for point in raw]
        first = [next((i for i in branch.applied if each[i]), None) for each in broken]
        assert branch.removed == tuple(first.count(i) for i in range(len(texts)))
    assert space.point(space.default_index) == brute.valid[0]
    assert [space.index_of(point) for point in points] == list(range(len(space)))


@settings(max_examples=25, deadline=None)
@given(documents(), FACT_SETS)
def test_indices_of_any_row_at_all(document: tuple[dict[str, Any], list[str]], facts: dict[str, Any]) -> None:
    _, space = both(document, facts)
    for branch in () if space is None else space.branches:
        spans = [range(-2, len(values) + 1) for values in branch.values.values()]
        every = list(itertools.product(*spans))
        rows = np.array(every, dtype=np.int64).reshape(len(every), len(spans))
        known = {tuple(row): index for index, row in enumerate(branch.rows.tolist())}
        assert branch.indices_of(rows).tolist() == [known.get(tuple(row), -1) for row in rows.tolist()]
        assert branch.indices_of(rows[:0]).shape == (0,)


def distance(space: Space, first: list[int], second: list[int]) -> int:
    total = 0
    for values, a, b in zip(space.values.values(), first, second, strict=True):
        if a >= 0 and b >= 0:
            total += int(a != b) if isinstance(values[0], str) else abs(a - b)
    return total


@settings(max_examples=25, deadline=None)
@given(documents(), FACT_SETS, st.data())
def test_nearest_agrees_with_brute_force(
    document: tuple[dict[str, Any], list[str]], facts: dict[str, Any], data: st.DataObject
) -> None:
    _, space = both(document, facts)
    if space is None:
        return
    row = [data.draw(st.integers(-1, len(values) - 1)) for values in space.values.values()]
    exclude = np.array(data.draw(st.lists(st.booleans(), min_size=len(space), max_size=len(space))))
    ranked = sorted((distance(space, row, other), index) for index, other in enumerate(space.rows.tolist()))
    assert space.nearest(np.array(row)) == ranked[0][1]
    if exclude.all():
        with pytest.raises(ValueError, match="excluded"):
            space.nearest(np.array(row), exclude)
    else:
        assert space.nearest(np.array(row), exclude) == next(index for _, index in ranked if not exclude[index])


@settings(max_examples=25, deadline=None)
@given(documents(), FACT_SETS, st.integers(1, 3))
def test_neighbours(document: tuple[dict[str, Any], list[str]], facts: dict[str, Any], radius: int) -> None:
    _, space = both(document, facts)
    if space is None:
        return
    rows = space.rows.tolist()
    for index in range(0, len(space), 1 + len(space) // 10):
        found = space.neighbours(index, radius).tolist()
        assert found == [
            other
            for other in range(len(space))
            if rows[index][0] == rows[other][0]
            and sum(a != b for a, b in zip(rows[index], rows[other], strict=True)) == 1
            and distance(space, rows[index], rows[other]) <= radius
        ]
        assert all(index in space.neighbours(other, radius) for other in found)
