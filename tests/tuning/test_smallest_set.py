"""The smallest set of variants that keeps each problem within the loss of its own best."""

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.tuning.finals.serving import smallest_set

NAMES = "abcd"
TIMES = st.dictionaries(st.sampled_from(NAMES), st.floats(-1.0, -0.001), max_size=4)


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
