"""The surrogate: a Gaussian process like the textbook's, the same however its points came to be known."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from autotuner.search import covariance as covariances, surrogate
from autotuner.search.covariance import Floats, Hypers, Indices, Likelihood, Steps
from autotuner.search.surrogate import Surrogate
from autotuner.values.known_points import KnownPoints
from tests.helpers.searching import ALL, BRANCH, NOBODY, judged


def covariance(hypers: Hypers, one: Indices, other: Indices) -> float:
    """Matern 5/2 of the steps between two rows of value indices, written out."""
    total: float = 0.0
    for j, values in enumerate(BRANCH.values.values()):
        a, b = int(one[j]), int(other[j])
        if a == b:
            continue
        numbers = a >= 0 and b >= 0 and not isinstance(values[0], str)
        far = abs(a - b) / (len(values) - 1) if numbers else 1.0
        share = hypers.shares[j]
        total += (((1 - share) * far + share * 0.5) / hypers.lengths[j]) ** 2
    r = math.sqrt(5 * total)
    return (1 + r + r * r / 3) * math.exp(-r)


def textbook(model: Surrogate, points: Indices, objectives: Floats, at: Indices) -> tuple[Floats, Floats]:
    """Mean and deviation by the formulas of Rasmussen and Williams, 2.25 and 2.26, in double precision."""
    targets, shift, scale = surrogate._standard(objectives)
    belief, unit = (
        (np.zeros(len(BRANCH)), 1.0) if model.earlier is None else (model.earlier.belief, model.earlier.scale)
    )
    trend = model.hypers.slope**0.5 * belief
    expected = belief * unit / scale
    level = 0.0 if model.earlier is None else (targets - expected[points]).mean()
    beyond = targets - expected[points] - level

    def between(a: int, b: int) -> float:
        return covariance(model.hypers, BRANCH.rows[a], BRANCH.rows[b]) + float(trend[a] * trend[b])

    among = np.array([[between(a, b) for b in points] for a in points])
    across = np.array([[between(a, b) for b in points] for a in at])
    inverse = np.linalg.inv(among + (model.hypers.noise + covariances.JITTER) * np.eye(len(points)))
    amplitude = beyond @ inverse @ beyond / len(points)
    mean = level + expected[at] + across @ inverse @ beyond
    variance = amplitude * (1 + trend[at] ** 2 - np.einsum("ij,jk,ik->i", across, inverse, across))
    return shift + scale * mean, scale * np.sqrt(np.maximum(variance, 0))


def known_points() -> KnownPoints:
    """Of a study in which what is fast here is fast as well."""
    points, objectives = judged(60, seed=11)
    told = [each if math.isfinite(each) else None for each in objectives.tolist()]
    return KnownPoints(study="other", points=tuple(points.tolist()), objectives=tuple(told))


@pytest.mark.parametrize("told", [None, known_points()], ids=["cold", "warm"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("n", [6, 40])
def test_it_believes_what_the_textbook_says(whole: bool, n: int, told: KnownPoints | None) -> None:
    points, objectives = judged(n)
    model = Surrogate.of(BRANCH, 0, whole, told)
    assert model.learn(points, objectives)
    at = ALL[::17]
    mean, deviation = model.believe(at)
    expected_mean, expected_deviation = textbook(model, points, objectives, at)
    assert mean == pytest.approx(expected_mean, abs=2e-3)
    assert deviation == pytest.approx(expected_deviation, abs=5e-3)


@pytest.mark.parametrize("told", [None, known_points()], ids=["cold", "warm"])
def test_the_gradient_of_the_likelihood(told: KnownPoints | None) -> None:
    points, objectives = judged(25)
    steps = Steps(BRANCH)
    earlier = Surrogate.of(BRANCH, 0, whole=False, known=told).earlier
    likelihood = Likelihood(steps, points, surrogate._standard(objectives)[0], earlier)
    draw = np.random.default_rng(1)
    d = len(steps)
    theta = np.concatenate([draw.normal(0, 0.5, d), [-4.0], draw.normal(-1, 0.5, d), [] if told is None else [-0.5]])

    def value(at: Floats) -> float:
        return likelihood(at)[0]

    numeric = scipy.optimize.approx_fprime(theta, value, 1e-6)
    assert likelihood(theta)[1] == pytest.approx(numeric, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("whole", [True, False])
def test_learning_one_by_one_and_at_once_are_the_same_to_the_last_bit(whole: bool) -> None:
    points, objectives = judged(70)
    steady = Surrogate.of(BRANCH, 5, whole)
    for n in range(1, 71):
        known = steady.learn(points[:n], objectives[:n])
        if n % 9 == 0:
            fresh = Surrogate.of(BRANCH, 5, whole)
            assert fresh.learn(points[:n], objectives[:n]) == known
            assert np.array_equal(fresh.gains(ALL, points[:3]), steady.gains(ALL, points[:3]))


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_being_judged_leaves_less_to_learn_there(whole: bool) -> None:
    points, objectives = judged(30)
    model = Surrogate.of(BRANCH, 0, whole)
    model.learn(points, objectives)
    unjudged = np.setdiff1d(ALL, points)
    before = model.gains(unjudged, NOBODY)
    first = unjudged[np.argmax(before)]
    after = model.gains(unjudged, np.array([first]))
    assert (after <= before + 1e-6).all()
    place = int(np.flatnonzero(unjudged == first)[0])
    assert after[place] < before[place] - 1
    assert unjudged[np.argmax(after)] != first
