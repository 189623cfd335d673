"""What the search believes of points that were not judged: a Gaussian process over the places of their values.

A point is what its parameters' places in their lists of values are. Between two values of a parameter there is a step:
for numbers it grows with the places between them, for strings any two values are one step apart, and a parameter that
does not exist at a point is one step from all its values. The covariance of two points is a Matern 5/2 function of the
root of the squared steps added up, each in units of its parameter's length (automatic relevance determination);
lengths, noise and the kind of steps maximise the marginal likelihood with weak priors: C. E. Rasmussen and
C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 4 and 5. Expected improvement is that of
D. R. Jones, M. Schonlau and W. J. Welch, Efficient Global Optimization of Expensive Black-Box Functions, 1998.

Everything depends on the space, the seed and the judged points in the order of their ends, and on nothing else: a
surrogate that is made anew believes the same to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from autotuner.lessons import Lessons
from autotuner.one_thread import single_threaded
from autotuner.space import Space

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Indices = NDArray[np.int64]

LENGTH, LENGTH_SPREAD = np.log(0.7), 1.2
NOISE, NOISE_SPREAD = np.log(1e-2), 1.5
"""The noise's variance; the whole variance is 1."""
SHARE, ENUMERATED, SHARE_SPREAD = -1.4, 2.0, 1.0
"""Logits of the share of a number's step that is the same between any two values. The second is for numbers that count
up from 0 through at least three values: more often they name a method than an amount."""
JITTER = 1e-6
BOUNDS = ((-4.0, 5.0), (-12.0, 1.0), (-5.0, 5.0))
"""Of the logarithms of lengths and noise, and of the logits of shares."""

FITTED, REMEMBERED = 150, 400
"""So many judged points at most decide the hyperparameters, and so many are conditioned on at each fit."""
FADE = 2
"""For each point judged here so many of the other study's are forgotten at the next fit."""
GROWTH, STEP, LONGEST = 1.3, 3, 256
"""The next fit is after so many times as many points and so many more, but no later than after the last number."""
SLOW, SQUEEZE = 1.0, 0.2
"""What is farther above the median than this times the median's distance from the best is squeezed: among the slow ones
it does not matter which is how slow, and they would set the scale."""
REJECTED_AS = 0.9
"""A reject counts as this quantile of what was measured. The number is used here alone, no store ever has it."""
DRAWS, LIE = 0, 0.0
"""What is being judged counts as if it had come out in as many ways as are drawn, and gains are averaged over them.
Without draws there is one: so many deviations above what is believed."""


class Hypers(NamedTuple):
    """What is fitted, for d parameters that vary."""

    lengths: Floats
    """(d,): a parameter with a great length matters little."""
    noise: float
    """The variance of a measurement, where 1 is the variance of all."""
    shares: Floats
    """(d,), 0..1: how much of a step does not depend on how far it goes."""


class Steps:
    """The steps between the values of each parameter of a space, and points as the values they have.

    A value's slot is its place among all values of all d parameters that vary; each parameter has one more, its first,
    for points at which it does not exist. K slots in all.

    The m points `taught` that were judged in another study come after the N of the space. The study is one more
    parameter then: its length says how much can be learnt from the other one.
    """

    def __init__(self, space: Space, taught: Indices | None = None) -> None:
        rows = space.rows
        self.columns = [column for column in range(rows.shape[1]) if np.ptp(rows[:, column]) > 0]
        """Of the space's rows: the parameters that vary."""
        values = [list(list(space.values.values())[column]) for column in self.columns]
        places = rows[:, self.columns].astype(np.int64) + 1
        if taught is not None:
            study = np.repeat([1, 2], [len(rows), len(taught)])
            places = np.column_stack([np.concatenate([places, places[taught]]), study])
            values.append(["here", "there"])
        sizes = [len(each) + 1 for each in values]
        self._first = np.cumsum([0, *sizes])
        self.slots = places + self._first[:-1]
        """(N + m, d)"""
        self.far = [_far(each) for each in values]
        """How far it is between two values, 0..1; each (k, k)."""
        self.other = [1.0 - np.eye(size) for size in sizes]
        """Whether they differ."""
        enumerated = [each == list(range(len(each))) and len(each) > 2 for each in values]
        self.share_prior = np.where(enumerated, ENUMERATED, SHARE)

    def __len__(self) -> int:
        return len(self.far)

    def places(self, points: Indices) -> Indices:
        """(n, d): the slot of each value, counted from its parameter's first."""
        found: Indices = self.slots[points] - self._first[:-1]
        return found

    def squares(self, hypers: Hypers) -> list[Floats]:
        """The squared steps of each parameter in units of its length."""
        pairs = zip(self.far, self.other, hypers.lengths, hypers.shares, strict=True)
        return [(((1 - share) * far + share * 0.5 * other) / length) ** 2 for far, other, length, share in pairs]

    def marks(self, points: Indices) -> Singles:
        """(K, n): 1 at the slots that each point has."""
        marked = np.zeros((self._first[-1], len(points)), dtype=np.float32)
        marked[self.slots[points].T, np.arange(len(points))] = 1
        return marked

    def spread_out(self, squares: list[Floats], points: Indices) -> Singles:
        """(n, K): the squared step from each point to every slot; its product with marks adds the steps up."""
        places = self.places(points)
        return np.concatenate([table[places[:, j]] for j, table in enumerate(squares)], axis=1, dtype=np.float32)


def _far(values: list[Any]) -> Floats:
    """How far it is between two values of a parameter, the first for its absence."""
    size = len(values) + 1
    if isinstance(values[0], str) or size <= 2:
        return 1.0 - np.eye(size)
    places = np.arange(size)
    far: Floats = np.abs(places[:, None] - places[None]) / (size - 2)
    far[0, 1:] = far[1:, 0] = 1.0
    return far


def _matern(squares: NDArray[Any]) -> NDArray[Any]:
    """Matern 5/2 of squared distances."""
    r = np.sqrt(np.maximum(squares, 0) * 5)
    covariances: NDArray[Any] = (1 + r + r * r / 3) * np.exp(-r)
    return covariances


class Surrogate:
    """Beliefs about the points of a space, from those that were judged.

    Without `whole` it believes only of the points that it is asked about; with it, it keeps what it needs to answer for
    all of them at once, 4 bytes for each pair of a point and a judged one.
    """

    def __init__(self, space: Space, seed: int, whole: bool, lessons: Lessons | None = None) -> None:
        """`lessons`: what another study has measured; at least one of its points has a latency."""
        self._taught = None if lessons is None else _Taught(space, seed, lessons)
        self.steps = Steps(space, None if self._taught is None else self._taught.points)
        self._seed, self._whole = seed, whole
        self._all = np.arange(len(space))
        self._marks = self.steps.marks(self._all) if whole else None
        self._points: Indices = np.empty(0, dtype=np.int64)
        self._objectives: Floats = np.empty(0)
        self._epoch = 0
        """How many points the last fit knew; 0 before the first."""
        self._known, self._outcomes = self._points, self._objectives  # with those of the other study before them
        self.hypers: Hypers
        self._factor: _Factor

    # Learning ---------------------------------------------------------------------------------------------------

    @single_threaded
    def learn(self, points: Indices, objectives: Floats) -> bool:
        """Takes in the judged points (n,), all of them in the order of their ends, and their objectives, +inf for a
        reject. Whether there is a belief: not before something was measured.

        The hyperparameters are fitted again each time that there are GROWTH times as many points, to the first of them.
        """
        epoch = _last_fit(len(points))
        known = len(self._points)
        same = known <= len(points) and np.array_equal(points[:known], self._points)
        if not (same and epoch == self._epoch):
            if not np.isfinite(objectives[:epoch]).any():
                return False
            self._fit(points[:epoch], objectives[:epoch])
            known = epoch
        for point in points[known:]:
            self._factor.add(int(point))
        self._points, self._objectives, self._epoch = points, objectives, epoch
        self._known, self._outcomes = self._with_taught(points, objectives)
        return True

    def _with_taught(self, points: Indices, objectives: Floats) -> tuple[Indices, Floats]:
        """What was judged here after what was judged in the other study, if there is one."""
        if self._taught is None:
            return points, objectives
        both = self._taught.levelled(points, objectives), objectives
        return np.concatenate([self._taught.places, points]), np.concatenate(both)

    def _fit(self, points: Indices, objectives: Floats) -> None:
        own, room = len(points), _next_fit(len(points)) - len(points)
        points, objectives = self._with_taught(points, objectives)
        targets = _standard(objectives)[0]
        chosen = self._subset(targets, own, FITTED)
        self.hypers = fit(self.steps, points[chosen], targets[chosen])
        chosen = self._subset(targets, own, REMEMBERED)
        self._factor = _Factor(self.steps, self.hypers, points[chosen], room, self._marks)

    def _subset(self, targets: Floats, own: int, most: int) -> Indices:
        """At most so many of the points, in their order. The last `own` are this study's; of the other's the worst are
        forgotten first."""
        taught = len(targets) - own
        kept = taught + self._halved(targets[taught:], most)
        room = max(0, min(most - len(kept), taught - FADE * own))
        return np.concatenate([np.sort(np.argsort(targets[:taught], kind="stable")[:room]), kept])

    def _halved(self, targets: Floats, most: int) -> Indices:
        """Of more points than that the better half of so many, and others by lot; in their order."""
        if len(targets) <= most:
            return np.arange(len(targets))
        order = np.argsort(targets, kind="stable")
        draw = np.random.default_rng([self._seed, len(targets)])
        return np.sort(np.concatenate([order[: most // 2], draw.permutation(order[most // 2 :])[: most - most // 2]]))

    # Believing --------------------------------------------------------------------------------------------------

    @single_threaded
    def believe(self, points: Indices) -> tuple[Floats, Floats]:
        """Mean and standard deviation (n,) of the objective at each point, as if all was well there."""
        mean, deviation, _, shift, scale = self._standard_belief(points)
        return shift + scale * mean, scale * deviation

    @single_threaded
    def gains(self, points: Indices, pending: Indices) -> Floats:
        """The logarithm of the expected improvement over the best so far, at each of the points (n,), in units of the
        objective.

        `pending` points are being judged: they count as if they had come out as believed, which leaves less to learn
        near them (the kriging believer of D. Ginsbourger, R. Le Riche and L. Carraro, Kriging Is Well-Suited to
        Parallelize Optimization, 2010), or as DRAWS and LIE say. With many draws the gain is that over the best of
        what was judged and is being judged.
        """
        both, n = np.concatenate([points, pending]), len(points)
        mean, deviation, amplitude, _, scale = self._standard_belief(both)
        means, best = mean[:n, None], np.array([self._best()])
        if len(pending):
            lower, known, left = self._beside(both, n)
            surprises = self._surprises(lower, deviation[n:], amplitude)
            means = means + known.T @ surprises
            best = np.minimum(best, (mean[n:, None] + lower @ surprises).min(axis=0))
            deviation = deviation[:n] * np.sqrt(left)
        deviation = deviation[:, None]
        gains = np.log(scale * deviation) + _log_improvement((best - means) / deviation)
        mean_gain: Floats = np.logaddexp.reduce(gains, axis=1) - np.log(gains.shape[1])
        return mean_gain

    def as_measured(self, believed: Floats) -> Floats:
        """Believed objectives (n,) with the squeezing of the slow ones undone."""
        slow = _slow(self._outcomes[np.isfinite(self._outcomes)])
        stretched: Floats = np.where(believed > slow, slow + (believed - slow) / SQUEEZE, believed)
        return stretched

    def _standard_belief(self, points: Indices) -> tuple[Floats, Floats, float, float, float]:
        """Mean, deviation and amplitude in standard units, with the shift and the scale of these."""
        targets, shift, scale = _standard(self._outcomes)
        by_point = np.full(len(self.steps.slots), np.nan)
        by_point[self._known] = targets
        mean, variance, amplitude = self._factor.believe(by_point, points)
        return mean, np.sqrt(np.maximum(variance, 1e-9) * amplitude), amplitude, shift, scale

    def _best(self) -> float:
        return float(_standard(self._outcomes)[0][-len(self._points) :].min())

    def _beside(self, both: Indices, n: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Of n points and the q after them: the Cholesky factor (q, q) of the covariance of the latter's outcomes, it
        solved for the covariances (q, n), and the share (n,) of the variances that is left once they are known."""
        shared = self._factor.covariance(both[:n], both[n:])
        among = self._factor.covariance(both[n:], both[n:])
        among[np.diag_indices(len(among))] += self.hypers.noise + JITTER
        lower = np.linalg.cholesky(among)
        known = scipy.linalg.solve_triangular(lower, shared.T, lower=True, check_finite=False)
        left = 1.0 - (known**2).sum(axis=0) / np.maximum(self._factor.variance(both[:n]), 1e-9)
        return lower, known, np.maximum(left, 1e-6)

    def _surprises(self, lower: Floats, deviation: Floats, amplitude: float) -> Floats:
        """In how many ways (q, k) the outcomes of q points may differ from what is believed; `lower` makes it so."""
        q = len(deviation)
        if DRAWS:
            draw = np.random.default_rng([self._seed, len(self._points), q])
            drawn: Floats = amplitude**0.5 * draw.standard_normal((q, DRAWS))
            return drawn
        solved: Floats = scipy.linalg.solve_triangular(lower, LIE * deviation[:, None], lower=True, check_finite=False)
        return solved


class _Taught:
    """What was judged in another study: its m points, their places after the N of the space, and their objectives."""

    def __init__(self, space: Space, seed: int, lessons: Lessons) -> None:
        self.points = np.array(lessons.points, dtype=np.int64)
        self.places = len(space) + np.arange(len(self.points))
        self._objectives = np.array([np.inf if each is None else each for each in lessons.objectives])
        self._teacher = Surrogate(space, seed, whole=False)
        self._teacher.learn(self.points, self._objectives)

    def levelled(self, points: Indices, objectives: Floats) -> Floats:
        """Its objectives (m,), moved by the median difference between what was measured here and what is believed there
        of the same points: the baseline sets the level, only differences can be learnt."""
        measured = np.isfinite(objectives)
        return self._objectives + float(np.median(objectives[measured] - self._teacher.believe(points[measured])[0]))


class _Factor:
    """The Cholesky factor of the judged points' covariance, a row longer with each that comes, and what it makes of the
    others'.
    """

    def __init__(self, steps: Steps, hypers: Hypers, points: Indices, room: int, marks: Singles | None) -> None:
        self._steps, self._hypers = steps, hypers
        self._squares = steps.squares(hypers)
        self._marks = marks
        self._points = points
        m = len(points)
        covariance = self._kernel(points, points).astype(np.float64)
        covariance[np.diag_indices(m)] += hypers.noise + JITTER
        self._lower = np.zeros((m + room, m + room))
        self._lower[:m, :m] = np.linalg.cholesky(covariance)
        if marks is not None:
            self._reduced = np.empty((m + room, marks.shape[1]), dtype=np.float32)
            self._reduced[:m] = self._reduce(_matern(self._spread(points) @ marks))
            self._variance = 1.0 - np.einsum("ij,ij->j", self._reduced[:m], self._reduced[:m])

    def add(self, point: int) -> None:
        """Conditions on one more."""
        m = len(self._points)
        if m == len(self._lower):
            raise AssertionError("no room: a fit was due")
        one = np.array([point])
        row = self._reduce(self._kernel(self._points, one))[:, 0]
        last = np.sqrt(max(1.0 + self._hypers.noise + JITTER - float(row @ row), JITTER))
        self._lower[m, :m], self._lower[m, m] = row, last
        if self._marks is not None:
            fresh = _matern(self._spread(one) @ self._marks)[0] - row.astype(np.float32) @ self._reduced[:m]
            self._reduced[m] = fresh / np.float32(last)
            self._variance -= self._reduced[m] ** 2
        self._points = np.append(self._points, point)

    def believe(self, targets: Floats, points: Indices) -> tuple[Floats, Floats, float]:
        """Mean and variance at the points, without the amplitude, and the amplitude. `targets` (N,) are by point."""
        m = len(self._points)
        weights = scipy.linalg.solve_triangular(
            self._lower[:m, :m], targets[self._points], lower=True, check_finite=False
        )
        amplitude = max(float(weights @ weights) / m, 1e-3)
        if self._marks is not None:
            mean = weights.astype(np.float32) @ self._reduced[:m]
            return mean[points].astype(np.float64), self._variance[points].astype(np.float64), amplitude
        reduced = self.reduced(points)
        return weights @ reduced, 1.0 - np.einsum("ij,ij->j", reduced, reduced), amplitude

    def reduced(self, points: Indices) -> NDArray[Any]:
        """(m, n): the inverse of the factor times the covariances with the points."""
        if self._marks is not None:
            return self._reduced[: len(self._points), points]
        return self._reduce(self._kernel(self._points, points))

    def variance(self, points: Indices) -> Floats:
        """(n,): what is left of 1 when the judged points are known."""
        reduced = self.reduced(points).astype(np.float64)
        left: Floats = 1.0 - np.einsum("ij,ij->j", reduced, reduced)
        return left

    def covariance(self, some: Indices, others: Indices) -> Floats:
        """(a, b): what is left of their covariances when the judged points are known."""
        left: Floats = (self._kernel(some, others) - self.reduced(some).T @ self.reduced(others)).astype(np.float64)
        return left

    def _kernel(self, some: Indices, others: Indices) -> Singles:
        return _matern(self._spread(some) @ self._steps.marks(others))

    def _spread(self, points: Indices) -> Singles:
        return self._steps.spread_out(self._squares, points)

    def _reduce(self, covariances: NDArray[Any]) -> NDArray[Any]:
        m = len(covariances)
        lower = self._lower[:m, :m].astype(np.float32) if m > 1 else self._lower[:m, :m]
        return scipy.linalg.solve_triangular(lower, covariances, lower=True, check_finite=False)


# Hyperparameters -------------------------------------------------------------------------------------------------


def fit(steps: Steps, points: Indices, targets: Floats) -> Hypers:
    """The hyperparameters of the highest posterior density, by L-BFGS from the priors' centres.

    `points` (n,) and their standardised targets. The amplitude is profiled out.
    """
    d = len(steps)
    start = np.concatenate([np.full(d, LENGTH), [NOISE], steps.share_prior])
    bounds = [BOUNDS[0]] * d + [BOUNDS[1]] + [BOUNDS[2]] * d
    likelihood = _Likelihood(steps, points, targets)
    found = scipy.optimize.minimize(
        likelihood, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 25}
    )
    return _hypers(found.x, d)


def _hypers(theta: Floats, d: int) -> Hypers:
    return Hypers(np.exp(theta[:d]), float(np.exp(theta[d])), scipy.special.expit(theta[d + 1 :]))


class _Likelihood:
    """Minus the logarithm of the posterior density of the hyperparameters, and its gradient."""

    def __init__(self, steps: Steps, points: Indices, targets: Floats) -> None:
        places = steps.places(points)
        self._far = _pairs(steps.far, places)
        self._other = 0.5 * _pairs(steps.other, places)
        self._targets, self._centre = targets, steps.share_prior
        self._d, self._m = len(steps), len(points)

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        d, m = self._d, self._m
        hypers = _hypers(theta, d)
        lengths, shares = hypers.lengths[:, None, None], hypers.shares[:, None, None]
        steps = ((1 - shares) * self._far + shares * self._other) / lengths
        r = np.sqrt(5 * (steps**2).sum(axis=0))
        fall = np.exp(-r)
        covariance = (1 + r + r * r / 3) * fall
        covariance[np.diag_indices(m)] += hypers.noise + JITTER
        try:
            factor = scipy.linalg.cho_factor(covariance, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return 1e9, np.zeros_like(theta)
        weights = scipy.linalg.cho_solve(factor, self._targets, check_finite=False)
        misfit = max(float(self._targets @ weights), 1e-9)
        value = 0.5 * m * np.log(misfit / m) + np.log(np.diag(factor[0])).sum()
        inverse = scipy.linalg.cho_solve(factor, np.eye(m), check_finite=False)
        slope = 0.5 * (inverse - (m / misfit) * np.outer(weights, weights))
        # of the value by each squared distance; that of the Matern function is -5/6 (1 + r) exp(-r)
        by_square = (slope * (-5 / 6) * (1 + r) * fall)[None] * steps
        gradient = np.empty_like(theta)
        gradient[:d] = -2 * (by_square * steps).sum(axis=(1, 2))
        gradient[d] = np.trace(slope) * hypers.noise
        by_share = 2 * (by_square * (self._other - self._far) / lengths).sum(axis=(1, 2))
        gradient[d + 1 :] = by_share * hypers.shares * (1 - hypers.shares)
        prior, prior_gradient = self._prior(theta)
        return float(value + prior), gradient + prior_gradient

    def _prior(self, theta: Floats) -> tuple[float, Floats]:
        d = self._d
        centre = np.concatenate([np.full(d, LENGTH), [NOISE], self._centre])
        spread = np.concatenate([np.full(d, LENGTH_SPREAD), [NOISE_SPREAD], np.full(d, SHARE_SPREAD)])
        off = (theta - centre) / spread
        return float(0.5 * (off**2).sum()), off / spread


def _pairs(tables: list[Floats], places: Indices) -> Floats:
    """(d, n, n): what the table of each parameter has for the values of each two points."""
    return np.stack([table[np.ix_(column, column)] for table, column in zip(tables, places.T, strict=True)])


# Numbers ---------------------------------------------------------------------------------------------------------


def _next_fit(points: int) -> int:
    """How many judged points the fit after the one to so many knows."""
    return min(int(points * GROWTH) + STEP, points + LONGEST)


def _last_fit(points: int) -> int:
    """How many of so many judged points the last fit knows."""
    last = following = 1
    while following <= points:
        last, following = following, _next_fit(following)
    return last


def _standard(objectives: Floats) -> tuple[Floats, float, float]:
    """Objectives (n,) as the model sees them, of mean 0 and deviation 1, with the shift and the scale of that: the slow
    ones squeezed, rejects at a high quantile of the others."""
    measured = np.isfinite(objectives)
    found = objectives[measured]
    targets = np.where(measured, objectives, np.quantile(found, REJECTED_AS))
    slow = _slow(found)
    targets = np.where(targets > slow, slow + SQUEEZE * (targets - slow), targets)
    shift, scale = float(targets.mean()), float(targets.std()) + 1e-9
    return (targets - shift) / scale, shift, scale


def _slow(found: Floats) -> float:
    """Above this objective what was measured is squeezed."""
    middle = float(np.median(found))
    return middle + SLOW * (middle - float(found.min()))


def _log_improvement(z: Floats) -> Floats:
    """log(z Phi(z) + phi(z)), in the far tail by its asymptote."""
    near, far = np.maximum(z, -5.0), np.minimum(z, -5.0)
    density = np.exp(-0.5 * near * near) / np.sqrt(2 * np.pi)
    tail = -0.5 * far * far - 0.5 * np.log(2 * np.pi) - 2 * np.log(-far)
    whole: Floats = np.where(z > -5.0, np.log(np.maximum(near * scipy.special.ndtr(near) + density, 1e-30)), tail)
    return whole
