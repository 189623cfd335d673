"""The smallest set of variants that keeps each problem within the loss of its own best."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.tuning.finals.serving import smallest_set

NAMES = "abcd"
TIMES = st.dictionaries(st.sampled_from(NAMES), st.floats(-1.0, -0.001), max_size=4)


def test_one_variant_that_is_nearly_best_everywhere_takes_the_place_of_two() -> None:
    problems = [{"a": -0.50, "c": -0.49}, {"b": -0.30, "c": -0.29}]
    assert [each.use for each in smallest_set(problems, [1, 1], 0.03)] == ["c", "c"]
    assert [each.use for each in smallest_set(problems, [1, 1], 0.0)] == ["a", "b"]


def test_the_baseline_serves_what_nobody_beats_and_costs_no_variant() -> None:
    found = smallest_set([{}, {"a": -0.01}, {"b": -0.5}], [1, 1, 1], 0.03)
    assert [each.use for each in found] == [None, None, "b"]
    assert math.isclose(found[1].loss, 0.01)


def test_of_sets_of_one_size_the_faster_over_all_wins() -> None:
    problems = [{"a": -0.50, "b": -0.49}, {"a": -0.29, "b": -0.30}]
    assert [each.use for each in smallest_set(problems, [1, 9], 0.03)] == ["b", "b"]
    assert [each.use for each in smallest_set(problems, [9, 1], 0.03)] == ["a", "a"]


@settings(max_examples=200, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=5), st.floats(0, 0.5))
def test_nobody_loses_more_than_is_allowed_and_no_smaller_set_does(
    problems: list[dict[str, float]], loss: float
) -> None:
    found = smallest_set(problems, [1.0] * len(problems), loss)
    for times, choice in zip(problems, found, strict=True):
        took = times[choice.use] if choice.use else 0.0
        best = min([0.0, *times.values()])
        assert took <= best + math.log1p(loss) + 1e-12
        assert math.isclose(choice.loss, took - best, abs_tol=1e-12)
    used = {each.use for each in found} - {None}
    limits = [min([0.0, *times.values()]) + math.log1p(loss) for times in problems]
    for size in range(len(used)):
        for smaller in itertools.combinations(NAMES, size):
            pairs = zip(problems, limits, strict=True)
            assert any(min([0.0, *(t[n] for n in smaller if n in t)]) > limit for t, limit in pairs)
