"""What known points make of a surrogate: its belief before much was judged here, however it came to know it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotuner.search.surrogate import Surrogate
from autotuner.values.known_points import KnownPoints
from autotuner.values.variant import Variant
from tests.helpers import simulated

SPACE = simulated.space()


def informed(seed: int = 0, level: float = 0.0) -> tuple[KnownPoints, Surrogate]:
    points = np.random.default_rng(seed).choice(len(SPACE), size=60, replace=False).tolist()
    times = [simulated.truth(Variant.of("sdpa", "cpu", SPACE.point(place))) for place in points]
    found = tuple(None if each.fault is not None else math.log(each.us) + level for each in times)
    made = KnownPoints(study="other", points=tuple(points), objectives=found)
    return made, Surrogate.of(SPACE, 0, whole=True, known=made)


def own(count: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    points = np.random.default_rng(7).choice(len(SPACE), size=count, replace=False)
    return points, np.array([math.log(3 * simulated.microseconds(SPACE.point(int(place)))) for place in points])


def test_the_level_of_the_other_study_does_not_matter() -> None:
    points, objectives = own(8)
    at = np.arange(len(SPACE))
    beliefs = []
    for level in (0.0, 5.0):
        model = informed(level=level)[1]
        assert model.learn(points, objectives)
        beliefs.append(model.believe(at))
    np.testing.assert_allclose(beliefs[0], beliefs[1], rtol=1e-4, atol=1e-4)


def test_an_informed_surrogate_believes_the_same_however_it_came_to_know() -> None:
    points, objectives = own(20)
    steady, fresh = informed()[1], informed()[1]
    for count in range(1, 21):
        assert steady.learn(points[:count], objectives[:count])
    assert fresh.learn(points, objectives)
    at = np.arange(len(SPACE))
    np.testing.assert_allclose(steady.gains(at, at[:2]), fresh.gains(at, at[:2]), rtol=1e-3, atol=1e-3)
    scarce = Surrogate.of(SPACE, 0, whole=False, known=informed()[0])
    assert scarce.learn(points, objectives)
    np.testing.assert_allclose(scarce.believe(at), fresh.believe(at), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("rejects", "measured"), [(27, 10), (38, 13), (110, 10), (0, 10)])
def test_a_study_that_began_with_many_rejects_is_believed_too(rejects: int, measured: int) -> None:
    """The surrogate is fitted to the first points; here these are all rejects."""
    points = np.random.default_rng(2).choice(len(SPACE), size=rejects + measured, replace=False).tolist()
    times = [math.log(simulated.microseconds(SPACE.point(place))) for place in points[rejects:]]
    made = KnownPoints(study="other", points=tuple(points), objectives=(*[None] * rejects, *times))
    earlier = Surrogate.of(SPACE, 0, whole=True, known=made).earlier
    assert earlier is not None
    assert np.isfinite(earlier.belief).all()
    order = np.argsort(times)
    ranked = [points[rejects:][place] for place in order]
    assert earlier.belief[ranked[:3]].mean() < earlier.belief[ranked[-3:]].mean()
