"""The search's belief about points that were not judged: a Gaussian process with the covariance of covariance.py.

Expected improvement is that of D. R. Jones, M. Schonlau and W. J. Welch, Efficient Global Optimization of Expensive
Black-Box Functions, 1998. A belief depends on the space, the seed, the settings and the judged points in the order of
their ends, and on nothing else: a surrogate that is made anew believes the same to the last bit.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from autotuner.search.covariance import JITTER, EarlierBelief, Floats, Hypers, Indices, Singles, Steps, fit, matern
from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.spaces.space import BranchPoints
from autotuner.values.known_points import KnownPoints

AT_ONCE = 10_000
"""Points whose beliefs are computed at a time, where all are wanted and their covariances are not kept."""
ROWS = 64
"""Rows of a triangular matrix that are multiplied at a time; more rows would multiply more zeros."""
TOLD_APART = 1e-6
"""Range of the expected log-latencies below which they tell no two points apart."""


P = ParamSpec("P")
T = TypeVar("T")


def single_threaded(method: Callable[P, T]) -> Callable[P, T]:
    """The method with BLAS on one thread: for matrices so small that more threads make it many times slower."""

    @functools.wraps(method)
    def limited(*arguments: P.args, **named: P.kwargs) -> T:
        with _libraries().limit(limits=1):
            return method(*arguments, **named)

    return limited


@functools.cache
def _libraries() -> Any:
    return ThreadpoolController().select(user_api="blas")


class PriorMean(NamedTuple):
    """What the earlier belief makes one expect of points, in a surrogate's own units."""

    belief: Floats
    slope: float
    level: float

    def at(self, points: Indices) -> Floats:
        return self.slope * self.belief[points] + self.level


class Surrogate:
    """Beliefs about the points of a space, from those that were judged.

    Without `whole` it believes only of the points that it is asked about; with it, it keeps what it needs to answer for
    all of them at once, 4 bytes for each pair of a point and a judged one.
    """

    def __init__(
        self,
        steps: Steps,
        seed: int,
        whole: bool,
        earlier: EarlierBelief | None = None,
        settings: SearchSettings = DEFAULT,
    ) -> None:
        """`earlier`: of all points of the steps."""
        self.steps, self.earlier, self.settings = steps, earlier, settings
        self._seed, self._whole = seed, whole
        self._marks = steps.marks(np.arange(len(steps.slots))) if whole else None
        self._points: Indices = np.empty(0, dtype=np.int64)
        self._objectives: Floats = np.empty(0)
        self._epoch = 0
        """Judged points at the last fit; 0 before the first."""
        self.hypers: Hypers
        self._targets: Floats
        """The objectives in standard units, whose shift and scale these are."""
        self._shift: float
        self._scale: float
        self._expected: PriorMean | None = None
        """In standard units; None without an earlier belief."""
        self._factor: _Factor

    @classmethod
    def of(
        cls,
        space: BranchPoints,
        seed: int,
        whole: bool,
        known: KnownPoints | None = None,
        settings: SearchSettings = DEFAULT,
    ) -> Self:
        """The surrogate of a branch. Its earlier belief is the latency expected there or, with `known`, comes from what
        another study has measured; at least one of the known points has a latency."""
        if known is None:
            return cls(Steps(space), seed, whole, _expected_by_file(space), settings)
        elsewhere = _elsewhere(space, known)
        steps = Steps(space, elsewhere)
        both = steps.beside(np.array(known.points), elsewhere)
        return cls(steps, seed, whole, _believed_elsewhere(space, seed, known, both, settings), settings)

    # Learning ---------------------------------------------------------------------------------------------------

    @single_threaded
    def learn(self, points: Indices, objectives: Floats) -> bool:
        """Takes in the judged points (n,), all of them in the order of their ends, and their objectives, +inf for a
        reject. Whether there is a belief: not before something was measured.

        The hyperparameters are fitted again each time that there are `refit_factor` times as many points, to the first
        of them.
        """
        epoch = _last_fit(len(points), self.settings)
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
        self._targets, self._shift, self._scale = _standard(objectives, self.settings)
        self._expected = self._expectation(points, self._targets, self._scale)
        return True

    def _fit(self, points: Indices, objectives: Floats) -> None:
        settings = self.settings
        room = _next_fit(len(points), settings) - len(points)
        targets, _, scale = _standard(objectives, settings)
        chosen = self._halved(targets, settings.fitted)
        beyond = _beyond(targets, points, self._expectation(points, targets, scale))
        self.hypers = fit(self.steps, points[chosen], beyond[chosen], self.earlier, settings)
        chosen = self._halved(targets, settings.conditioned if self._whole else settings.conditioned_unkept)
        belief = None if self.earlier is None else self.earlier.belief
        self._factor = _Factor(self.steps, self.hypers, points[chosen], room, self._marks, belief)

    def _expectation(self, points: Indices, targets: Floats, scale: float) -> PriorMean | None:
        """The earlier belief in units of this scale, shifted so that its mean at the points is that of the targets."""
        if self.earlier is None:
            return None
        slope = self.earlier.scale / scale
        level = float((targets - slope * self.earlier.belief[points]).mean())
        return PriorMean(self.earlier.belief, slope, level)

    def _halved(self, targets: Floats, most: int) -> Indices:
        """The places of at most `most` targets, in their order: half of them the best, the others by lot."""
        if len(targets) <= most:
            return np.arange(len(targets))
        order = np.argsort(targets, kind="stable")
        draw = np.random.default_rng([self._seed, len(targets)])
        return np.sort(np.concatenate([order[: most // 2], draw.permutation(order[most // 2 :])[: most - most // 2]]))

    # Believing --------------------------------------------------------------------------------------------------

    @single_threaded
    def believe(self, points: Indices) -> tuple[Floats, Floats]:
        """Mean and standard deviation (n,) of the objective at each point, as if all was well there."""
        mean, deviation = self._standard_belief(points)
        return self._shift + self._scale * mean, self._scale * deviation

    @single_threaded
    def gains(self, points: Indices, pending: Indices, best: float | None = None) -> Floats:
        """The logarithm of the expected improvement over the best so far, at each of the points (n,), in units of the
        objective. `best`: an objective that counts instead of the lowest of the points judged here.

        `pending` points are being judged: they count as if they had come out as believed, which leaves less to learn
        near them (the kriging believer of D. Ginsbourger, R. Le Riche and L. Carraro, Kriging Is Well-Suited to
        Parallelize Optimization, 2010).
        """
        both, n = np.concatenate([points, pending]), len(points)
        reduced = None if self._whole else self._factor.reduced(both)
        means, deviations = self._standard_belief(both, reduced)
        mean, deviation = means[:n], deviations[:n]
        least = self._targets.min() if best is None else (best - self._shift) / self._scale
        if len(pending):
            least = min(least, means[n:].min())
            deviation = deviation * np.sqrt(self._left_beside(both, n, reduced))
        gains: Floats = np.log(self._scale * deviation) + _log_improvement((least - mean) / deviation)
        return gains

    def as_measured(self, believed: Floats) -> Floats:
        """Believed objectives (n,) with the squeezing of the slow ones undone."""
        slow = _slow(self._objectives[np.isfinite(self._objectives)], self.settings)
        stretched: Floats = np.where(believed > slow, slow + (believed - slow) / self.settings.slow_factor, believed)
        return stretched

    def _standard_belief(self, points: Indices, reduced: NDArray[Any] | None = None) -> tuple[Floats, Floats]:
        """Mean and deviation in standard units. `reduced` of the points, if it is known."""
        by_point = np.full(len(self.steps.slots), np.nan)
        by_point[self._points] = _beyond(self._targets, self._points, self._expected)
        mean, variance, amplitude = self._factor.believe(by_point, points, reduced)
        if self._expected is not None:
            mean = mean + self._expected.at(points)
        return mean, np.sqrt(np.maximum(variance, 1e-9) * amplitude)

    @single_threaded
    def as_earlier_belief(self, count: int) -> EarlierBelief:
        """What it believes of the first `count` points, for the surrogate of a study that has not begun."""
        parts = np.array_split(np.arange(count), 1 + count // AT_ONCE)
        believed = (self._standard_belief(part) for part in parts)
        optimistic = [mean - self.settings.optimism * deviation for mean, deviation in believed]
        return EarlierBelief(np.concatenate(optimistic), self._scale)

    def _left_beside(self, both: Indices, n: int, reduced: NDArray[Any] | None) -> Floats:
        """The share (n,) of the variance of the first n points that is left once the outcomes of the points after them
        are known. `reduced` of both, if it is known."""
        points, pending = both[:n], both[n:]
        of_points = self._factor.reduced(points) if reduced is None else reduced[:, :n]
        of_pending = self._factor.reduced(pending) if reduced is None else reduced[:, n:]
        shared = self._factor.covariance(points, pending, of_points, of_pending)
        among = self._factor.covariance(pending, pending, of_pending, of_pending)
        among[np.diag_indices(len(among))] += self.hypers.noise + JITTER
        lower = np.linalg.cholesky(among)
        known = scipy.linalg.solve_triangular(lower, shared.T, lower=True, check_finite=False)
        left: Floats = 1.0 - (known**2).sum(axis=0) / np.maximum(self._factor.variance(points, of_points), 1e-9)
        return np.maximum(left, 1e-6)


def _believed_elsewhere(
    space: BranchPoints, seed: int, known: KnownPoints, steps: Steps, settings: SearchSettings
) -> EarlierBelief:
    """What the other study's surrogate believes of the space's points. In `steps` its own points, with the derived
    quantities that they have there, come after the space's."""
    elsewhere = Surrogate(steps, seed, whole=False, earlier=_expected_by_file(space, known), settings=settings)
    points = np.arange(len(space), len(steps.slots))
    objectives = np.array([np.inf if each is None else each for each in known.objectives])
    if not elsewhere.learn(points, objectives):  # the first ones, to which it is fitted, are all rejects
        order = np.argsort(~np.isfinite(objectives), kind="stable")
        elsewhere.learn(points[order], objectives[order])
    return elsewhere.as_earlier_belief(len(space))


def _expected_by_file(space: BranchPoints, known: KnownPoints | None = None) -> EarlierBelief | None:
    """The latency that the space file expects of the space's points and, after them, of the known points where these
    were measured; the mean where it expects none. None where it tells no two points apart."""
    if space.expected is None or (known is not None and len(known.expected) != len(known.points)):
        return None
    there = space.expected if known is None else np.array(known.expected, dtype=np.float64)
    told = there[np.isfinite(there)]
    if not len(told) or np.ptp(told) < TOLD_APART:
        return None
    both = space.expected if known is None else np.concatenate([space.expected, there])
    level, unit = told.mean(), told.std()
    return EarlierBelief(np.where(np.isfinite(both), (both - level) / unit, 0.0), float(unit))


def _elsewhere(space: BranchPoints, known: KnownPoints) -> Floats | None:
    """(n, q): the derived quantities of the known points where they were measured; None where they were not noted."""
    found = np.array(known.derived, dtype=np.float64)
    return found if found.shape == (len(known.points), space.derived.shape[1]) else None


class _Factor:
    """The inverse of the Cholesky factor of the judged points' covariance, a row longer with each that comes, and what
    it makes of the others'. To multiply by it takes some processors half as long as to solve with the factor.

    The factor on the earlier belief is no part of that covariance but is worked out beside it, as in Rasmussen and
    Williams 2.7: a great one would leave the process nothing of single precision.
    """

    def __init__(
        self,
        steps: Steps,
        hypers: Hypers,
        points: Indices,
        room: int,
        marks: Singles | None,
        belief: Floats | None = None,
    ) -> None:
        """`belief` (N,) is the earlier one, if there is one. `room`: points that may be added before the next fit."""
        self._steps, self._hypers = steps, hypers
        self._squares = steps.squares(hypers)
        self._marks = marks
        self._belief = belief
        self._points = points
        m = len(points)
        self._known_steps = np.empty((m + room, steps.size), dtype=np.float32)
        self._known_steps[:m] = self._spread(points)
        covariance = self._kernel(points, points).astype(np.float64)
        covariance[np.diag_indices(m)] += hypers.noise + JITTER
        lower = np.linalg.cholesky(covariance)
        self._inverse = np.zeros((m + room, m + room))
        self._inverse[:m, :m] = scipy.linalg.solve_triangular(lower, np.eye(m), lower=True, check_finite=False)
        self._rounded = self._inverse.astype(np.float32)
        if marks is not None:
            self._reduced = np.empty((m + room, marks.shape[1]), dtype=np.float32)
            self._reduced[:m] = self._reduce(self._kernel_to_marked(points, marks))
            self._variance = 1.0 - np.einsum("ij,ij->j", self._reduced[:m], self._reduced[:m])
        if belief is not None:
            self._trend = np.zeros(m + room)
            self._trend[:m] = self._inverse[:m, :m] @ belief[points]
            if marks is not None:
                self._beyond = belief - self._trend[:m] @ self._reduced[:m]

    def add(self, point: int) -> None:
        """Conditions on one more."""
        m = len(self._points)
        if m == len(self._inverse):
            raise AssertionError("no room: a fit was due")
        one = np.array([point])
        row = self._inverse[:m, :m] @ self._to_known(one)[:, 0]
        last = np.sqrt(max(1.0 + self._hypers.noise + JITTER - float(row @ row), JITTER))
        self._inverse[m, :m], self._inverse[m, m] = -(row @ self._inverse[:m, :m]) / last, 1 / last
        self._rounded[m] = self._inverse[m]
        if self._marks is not None:
            fresh = self._kernel_to_marked(one, self._marks)[0] - row.astype(np.float32) @ self._reduced[:m]
            self._reduced[m] = fresh / np.float32(last)
            self._variance -= self._reduced[m] ** 2
        self._known_steps[m] = self._spread(one)[0]
        self._points = np.append(self._points, point)
        if self._belief is not None:
            self._trend[m] = self._inverse[m, : m + 1] @ self._belief[self._points]
            if self._marks is not None:
                self._beyond -= self._trend[m] * self._reduced[m]

    def believe(
        self, targets: Floats, points: Indices, reduced: NDArray[Any] | None = None
    ) -> tuple[Floats, Floats, float]:
        """Mean and variance at the points, without the amplitude, and the amplitude. `targets` (N,) are by point;
        `reduced` is of the points, if it is known."""
        m = len(self._points)
        weights = self._inverse[:m, :m] @ targets[self._points]
        mean: Floats
        variance: Floats
        if self._marks is not None:
            mean = (weights.astype(np.float32) @ self._reduced[:m])[points].astype(np.float64)
            variance = self._variance[points].astype(np.float64)
        else:
            reduced = self.reduced(points) if reduced is None else reduced
            mean, variance = weights @ reduced, 1.0 - np.einsum("ij,ij->j", reduced, reduced)
        misfit = float(weights @ weights)
        if self._belief is not None:
            along, beyond = float(self._trend[:m] @ weights), self._beyond_process(points, reduced)
            misfit -= along**2 / self._precision
            mean, variance = mean + along / self._precision * beyond, variance + beyond**2 / self._precision
        return mean, variance, max(misfit / m, 1e-3)

    def reduced(self, points: Indices) -> NDArray[Any]:
        """(m, n): the inverse of the factor times the covariances with the points."""
        if self._marks is not None:
            return self._reduced[: len(self._points), points]
        return self._reduce(self._to_known(points))

    def variance(self, points: Indices, reduced: NDArray[Any]) -> Floats:
        """(n,): what is left of the variance when the judged points are known."""
        reduced = reduced.astype(np.float64)
        left: Floats = 1.0 - np.einsum("ij,ij->j", reduced, reduced)
        if self._belief is not None:
            left += self._beyond_process(points, reduced) ** 2 / self._precision
        return left

    def covariance(self, some: Indices, others: Indices, of_some: NDArray[Any], of_others: NDArray[Any]) -> Floats:
        """(a, b): what is left of their covariances when the judged points are known, from the `reduced` of both."""
        left: Floats = (self._kernel(some, others) - of_some.T @ of_others).astype(np.float64)
        if self._belief is not None:
            beyond = self._beyond_process(some, of_some), self._beyond_process(others, of_others)
            left += np.outer(*beyond) / self._precision
        return left

    @property
    def _precision(self) -> float:
        """Of the factor on the earlier belief, when the judged points are known."""
        trend = self._trend[: len(self._points)]
        return 1 / self._hypers.slope + float(trend @ trend)

    def _beyond_process(self, points: Indices, reduced: NDArray[Any] | None) -> Floats:
        """(n,): the earlier belief at the points, less what the process has of it from the judged ones."""
        assert self._belief is not None
        if self._marks is not None:
            beyond: Floats = self._beyond[points]
            return beyond
        assert reduced is not None
        rest: Floats = self._belief[points] - self._trend[: len(self._points)] @ reduced
        return rest

    def _to_known(self, points: Indices) -> Singles:
        known = self._known_steps[: len(self._points)] @ self._steps.marks(points)
        covariances: Singles = matern(known)
        return covariances

    def _kernel(self, some: Indices, others: Indices) -> Singles:
        return self._kernel_to_marked(some, self._steps.marks(others))

    def _kernel_to_marked(self, some: Indices, marks: Singles) -> Singles:
        covariances: Singles = matern(self._spread(some) @ marks)
        return covariances

    def _spread(self, points: Indices) -> Singles:
        return self._steps.spread_out(self._squares, points)

    def _reduce(self, covariances: Singles) -> Singles:
        """(m, n): the inverse of the factor times covariances (m, n); above its diagonal there is nothing."""
        reduced = np.empty_like(covariances)
        for first in range(0, len(covariances), ROWS):
            last = min(first + ROWS, len(covariances))
            np.matmul(self._rounded[first:last, :last], covariances[:last], out=reduced[first:last])
        return reduced


# Numbers ---------------------------------------------------------------------------------------------------------


def _next_fit(points: int, settings: SearchSettings = DEFAULT) -> int:
    """Judged points at the fit after the one to `points`."""
    return min(int(points * settings.refit_factor) + settings.refit_step, points + settings.refit_latest)


def _last_fit(points: int, settings: SearchSettings = DEFAULT) -> int:
    """Judged points at the last fit, when `points` are judged."""
    last = following = 1
    while following <= points:
        last, following = following, _next_fit(following, settings)
    return last


def _standard(objectives: Floats, settings: SearchSettings = DEFAULT) -> tuple[Floats, float, float]:
    """Objectives (n,) as the model sees them, of mean 0 and deviation 1, with the shift and the scale of that: the slow
    ones squeezed, rejects at a high quantile of the others."""
    measured = np.isfinite(objectives)
    found = objectives[measured]
    targets = np.where(measured, objectives, np.quantile(found, settings.reject_quantile))
    slow = _slow(found, settings)
    targets = np.where(targets > slow, slow + settings.slow_factor * (targets - slow), targets)
    shift, scale = float(targets.mean()), float(targets.std()) + 1e-9
    return (targets - shift) / scale, shift, scale


def _beyond(targets: Floats, points: Indices, expected: PriorMean | None) -> Floats:
    """The targets (n,) without what is expected of their points."""
    return targets if expected is None else targets - expected.at(points)


def _slow(found: Floats, settings: SearchSettings) -> float:
    """The objective above which the measured ones are squeezed."""
    middle = float(np.median(found))
    return middle + settings.slow_from * (middle - float(found.min()))


def _log_improvement(z: Floats) -> Floats:
    """log(z Phi(z) + phi(z)), in the far tail by its asymptote."""
    near, far = np.maximum(z, -5.0), np.minimum(z, -5.0)
    density = np.exp(-0.5 * near * near) / np.sqrt(2 * np.pi)
    tail = -0.5 * far * far - 0.5 * np.log(2 * np.pi) - 2 * np.log(-far)
    whole: Floats = np.where(z > -5.0, np.log(np.maximum(near * scipy.special.ndtr(near) + density, 1e-30)), tail)
    return whole
