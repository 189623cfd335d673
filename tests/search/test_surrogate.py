"""The surrogate: a Gaussian process like the textbook's, the same however its points came to be known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from autotuner.search import covariance as covariances
from autotuner.search import surrogate
from autotuner.search.covariance import Floats, Hypers, Indices, Likelihood, Steps
from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.search.surrogate import Surrogate
from autotuner.values.known_points import KnownPoints
from tests.helpers.searching import ALL, NOBODY, SPACE, judged, objective


def covariance(hypers: Hypers, one: Indices, other: Indices) -> float:
    """Matern 5/2 of the steps between two rows of value indices, written out."""
    total: float = 0.0
    for j, values in enumerate(SPACE.values.values()):
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
    belief, unit = (np.zeros(len(SPACE)), 1.0) if model.earlier is None else (model.earlier.belief, model.earlier.scale)
    trend = model.hypers.slope**0.5 * belief
    expected = belief * unit / scale
    level = 0.0 if model.earlier is None else (targets - expected[points]).mean()
    beyond = targets - expected[points] - level

    def between(a: int, b: int) -> float:
        return covariance(model.hypers, SPACE.rows[a], SPACE.rows[b]) + float(trend[a] * trend[b])

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
    model = Surrogate.of(SPACE, 0, whole, told)
    assert model.learn(points, objectives)
    at = ALL[::17]
    mean, deviation = model.believe(at)
    expected_mean, expected_deviation = textbook(model, points, objectives, at)
    assert mean == pytest.approx(expected_mean, abs=2e-3)
    assert deviation == pytest.approx(expected_deviation, abs=5e-3)


def test_expected_improvement_is_an_expectation() -> None:
    points, objectives = judged(40)
    model = Surrogate.of(SPACE, 0, whole=True)
    model.learn(points, objectives)
    at = ALL[::50]
    mean, deviation = model.believe(at)
    best = objectives.min()
    draws = np.random.default_rng(0).standard_normal(400_000)
    expected = [np.maximum(best - (m + d * draws), 0).mean() for m, d in zip(mean, deviation, strict=True)]
    assert np.exp(model.gains(at, NOBODY)) == pytest.approx(np.array(expected), rel=0.05, abs=2e-5)


def test_the_far_tail_of_the_improvement_is_ordered_and_finite() -> None:
    z = np.linspace(-40, 3, 2000)
    logs = surrogate._log_improvement(z)
    assert np.isfinite(logs).all()
    assert (np.diff(logs) > 0).all()
    near = np.array([-4.9, -2.0, 0.0, 2.0])
    exact = np.log(near * scipy.stats.norm.cdf(near) + scipy.stats.norm.pdf(near))
    assert surrogate._log_improvement(near) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("told", [None, known_points()], ids=["cold", "warm"])
def test_the_gradient_of_the_likelihood(told: KnownPoints | None) -> None:
    points, objectives = judged(25)
    steps = Steps(SPACE)
    earlier = Surrogate.of(SPACE, 0, whole=False, known=told).earlier
    likelihood = Likelihood(steps, points, surrogate._standard(objectives)[0], earlier)
    draw = np.random.default_rng(1)
    d = len(steps)
    theta = np.concatenate([draw.normal(0, 0.5, d), [-4.0], draw.normal(-1, 0.5, d), [] if told is None else [-0.5]])

    def value(at: Floats) -> float:
        return likelihood(at)[0]

    numeric = scipy.optimize.approx_fprime(theta, value, 1e-6)
    assert likelihood(theta)[1] == pytest.approx(numeric, rel=1e-3, abs=1e-3)


def test_a_fit_finds_out_what_matters() -> None:
    """BLOCK decides, MODE and UNROLL do nothing: their lengths are longer."""
    points = np.random.default_rng(3).choice(len(SPACE), size=60, replace=False)
    places = SPACE.rows[points, list(SPACE.values).index("BLOCK")]
    steps = Steps(SPACE)
    hypers = covariances.fit(steps, points, surrogate._standard(np.sin(places * 1.3))[0])
    lengths = dict(zip(steps.names, hypers.lengths, strict=True))
    assert lengths["BLOCK"] < min(lengths["MODE"], lengths["UNROLL"]) / 2


def test_what_another_study_believes_counts_as_far_as_it_holds_here() -> None:
    points, objectives = judged(30)
    shuffled = np.random.default_rng(5).permutation(objectives)
    multiples = []
    for told in (objectives, shuffled):
        model = Surrogate.of(SPACE, 0, whole=True, known=known_points())
        model.learn(points, told)
        assert model.earlier is not None
        belief = model.earlier.belief * model.earlier.scale
        multiples.append(np.cov(model.believe(ALL)[0], belief)[0, 1] / belief.var())
    assert 0.7 < multiples[0] < 1.3
    assert abs(multiples[1]) < 0.5


def test_before_much_was_judged_it_believes_what_another_study_does() -> None:
    points, objectives = judged(2)
    for told in (objectives, np.full(2, objectives[0]), np.array([objectives[0], math.inf])):
        model = Surrogate.of(SPACE, 0, whole=True, known=known_points())
        assert model.learn(points, told)
        assert model.earlier is not None
        mean, deviation = model.believe(ALL)
        assert np.corrcoef(mean, model.earlier.belief)[0, 1] > 0.9
        assert (np.isfinite(deviation) & (deviation > 0)).all()


def test_another_study_helps_where_little_was_judged_here() -> None:
    right = [place for place in ALL.tolist() if math.isfinite(objective(SPACE, place))]
    truth = np.array([objective(SPACE, place) for place in right])
    points, objectives = judged(8)
    errors = []
    for told in (None, known_points()):
        model = Surrogate.of(SPACE, 0, whole=True, known=told)
        model.learn(points, objectives)
        errors.append(float(np.corrcoef(model.believe(np.array(right))[0], truth)[0, 1]))
    assert errors[1] > errors[0] + 0.1


@pytest.mark.parametrize("whole", [True, False])
def test_learning_one_by_one_and_at_once_are_the_same_to_the_last_bit(whole: bool) -> None:
    points, objectives = judged(70)
    steady = Surrogate.of(SPACE, 5, whole)
    for n in range(1, 71):
        known = steady.learn(points[:n], objectives[:n])
        if n % 9 == 0:
            fresh = Surrogate.of(SPACE, 5, whole)
            assert fresh.learn(points[:n], objectives[:n]) == known
            assert np.array_equal(fresh.gains(ALL, points[:3]), steady.gains(ALL, points[:3]))


def test_an_order_that_changes_afterwards_is_learned_anew() -> None:
    """A clock that is set back puts a later end before an earlier one."""
    points, objectives = judged(30)
    model = Surrogate.of(SPACE, 5, whole=True)
    model.learn(points[:29], objectives[:29])
    order = np.r_[29, 0:29]
    model.learn(points[order], objectives[order])
    fresh = Surrogate.of(SPACE, 5, whole=True)
    fresh.learn(points[order], objectives[order])
    assert np.array_equal(fresh.gains(ALL, NOBODY), model.gains(ALL, NOBODY))


def test_more_points_than_it_is_conditioned_on() -> None:
    """The better half decides; the rest is drawn, the same each time."""
    as_many = SearchSettings(conditioned_unkept=DEFAULT.conditioned)
    points, objectives = judged(450)
    one, two = Surrogate.of(SPACE, 1, whole=True), Surrogate.of(SPACE, 1, whole=False, settings=as_many)
    one.learn(points, objectives)
    two.learn(points, objectives)
    assert np.corrcoef(one.believe(ALL)[0], two.believe(ALL)[0])[0, 1] > 0.9999
    measured = np.isfinite(objectives)
    best = points[measured][np.argsort(objectives[measured])[:50]]
    mean, _ = one.believe(best)
    assert mean == pytest.approx(np.sort(objectives[measured])[:50], abs=0.05)


def test_fits_become_rarer_but_not_without_end() -> None:
    """So that what is kept between them stays small."""
    fits = sorted({surrogate._last_fit(points) for points in range(1, 4000)})
    gaps = np.diff(fits)
    assert fits[:4] == [1, 4, 8, 13]
    assert (np.diff(gaps) >= 0).all()
    assert gaps.max() == DEFAULT.refit_latest


def test_rejects_show_that_the_region_is_bad_and_have_no_latency() -> None:
    points, objectives = judged(60, seed=2)
    worse = objectives.copy()
    near = SPACE.rows[points, list(SPACE.values).index("BLOCK")] == 3
    worse[near] = math.inf
    plain, warned = Surrogate.of(SPACE, 0, whole=True), Surrogate.of(SPACE, 0, whole=True)
    plain.learn(points, objectives)
    warned.learn(points, worse)
    there = ALL[SPACE.rows[:, list(SPACE.values).index("BLOCK")] == 3]
    assert (warned.believe(there)[0] > plain.believe(there)[0]).mean() > 0.9
    assert np.isfinite(warned.believe(ALL)[0]).all()


def test_without_a_measurement_there_is_no_belief() -> None:
    model = Surrogate.of(SPACE, 0, whole=True)
    assert not model.learn(ALL[:6], np.full(6, math.inf))
    assert not model.learn(NOBODY, np.empty(0))
    assert model.learn(ALL[:8], np.r_[np.full(2, math.inf), 1.0, 2.0, np.full(4, math.inf)])
    assert np.isfinite(model.gains(ALL, NOBODY)).all()


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_being_judged_leaves_less_to_learn_there(whole: bool) -> None:
    points, objectives = judged(30)
    model = Surrogate.of(SPACE, 0, whole)
    model.learn(points, objectives)
    unjudged = np.setdiff1d(ALL, points)
    before = model.gains(unjudged, NOBODY)
    first = unjudged[np.argmax(before)]
    after = model.gains(unjudged, np.array([first]))
    assert (after <= before + 1e-6).all()
    place = int(np.flatnonzero(unjudged == first)[0])
    assert after[place] < before[place] - 1
    assert unjudged[np.argmax(after)] != first


def test_a_step_to_where_a_parameter_does_not_exist_and_between_strings() -> None:
    steps = Steps(SPACE)
    names = steps.names
    width, mode, block = (steps.far[names.index(name)] for name in ("WIDTH", "MODE", "BLOCK"))
    assert width[0, 1:].tolist() == [1, 1, 1]
    assert width[1, 1:].tolist() == [0, 0.5, 1]
    assert (mode == 1 - np.eye(4)).all()
    assert block[1, 1:].tolist() == [0, 0.25, 0.5, 0.75, 1]
