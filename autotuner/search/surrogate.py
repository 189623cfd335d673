"""What the search believes of points that were not judged: a Gaussian process whose covariance is covariance.py's.

Expected improvement is that of D. R. Jones, M. Schonlau and W. J. Welch, Efficient Global Optimization of Expensive
Black-Box Functions, 1998. Everything depends on the space, the seed and the judged points in the order of their ends,
and on nothing else: a surrogate that is made anew believes the same to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from autotuner.search.covariance import JITTER, Floats, Hypers, Indices, Singles, Steps, Taught, fit, matern
from autotuner.search.one_thread import single_threaded
from autotuner.spaces.space import Space
from autotuner.values.known_points import Lessons

FITTED, REMEMBERED, REMEMBERED_OF_MANY = 150, 400, 200
"""So many judged points at most decide the hyperparameters, and so many are conditioned on at each fit; the third where
covariances are not kept, and each proposal takes as long as the square of the number."""
GROWTH, STEP, LONGEST = 1.3, 3, 256
"""The next fit is after so many times as many points and so many more, but no later than after the last number."""
SLOW, SQUEEZE = 1.0, 0.2
"""What is farther above the median than this times the median's distance from the best is squeezed: among the slow ones
it does not matter which is how slow, and they would set the scale."""
REJECTED_AS = 0.9
"""A reject counts as this quantile of what was measured. The number is used here alone, no store ever has it."""
AT_ONCE = 10_000
"""So many points are believed of at a time where a belief of all is wanted and their covariances are not kept."""
ROWS = 64
"""So many rows of a triangular matrix are multiplied at a time; more would multiply more zeros."""
OPTIMISM = 1.0
"""A lesson is what is believed, less so many deviations: of what the other study knows little, good is expected."""
TOLD_APART = 1e-6
"""Expected latencies that all are as close to each other as this, relative, expect nothing."""
DRAWS, LIE = 0, 0.0
"""What is being judged counts as if it had come out in as many ways as are drawn, and gains are averaged over them.
Without draws there is one: so many deviations above what is believed."""


class Expected(NamedTuple):
    """What to expect of points by what was believed of them beforehand, in a surrogate's own units."""

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

    def __init__(self, steps: Steps, seed: int, whole: bool, taught: Taught | None = None) -> None:
        """`taught`: of all points of the steps."""
        self.steps, self.taught = steps, taught
        self._seed, self._whole = seed, whole
        self._marks = steps.marks(np.arange(len(steps.slots))) if whole else None
        self._points: Indices = np.empty(0, dtype=np.int64)
        self._objectives: Floats = np.empty(0)
        self._epoch = 0
        """How many points the last fit knew; 0 before the first."""
        self.hypers: Hypers
        self._targets: Floats
        """The objectives in standard units, whose shift and scale these are."""
        self._shift: float
        self._scale: float
        self._expected: Expected | None = None
        """In standard units; None where nothing was taught."""
        self._factor: _Factor

    @classmethod
    def of(cls, space: Space, seed: int, whole: bool, lessons: Lessons | None = None) -> Surrogate:
        """That of a space, taught what its file expects. `lessons`: what another study has measured, by which it is
        taught instead; at least one of their points has a latency."""
        if lessons is None:
            return cls(Steps(space), seed, whole, _foretold(space))
        elsewhere = _elsewhere(space, lessons)
        steps = Steps(space, elsewhere)
        return cls(steps, seed, whole, _taught(space, seed, lessons, steps.beside(np.array(lessons.points), elsewhere)))

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
        self._targets, self._shift, self._scale = _standard(objectives)
        self._expected = self._expectation(points, self._targets, self._scale)
        return True

    def _fit(self, points: Indices, objectives: Floats) -> None:
        room = _next_fit(len(points)) - len(points)
        targets, _, scale = _standard(objectives)
        chosen = self._halved(targets, FITTED)
        beyond = _beyond(targets, points, self._expectation(points, targets, scale))
        self.hypers = fit(self.steps, points[chosen], beyond[chosen], self.taught)
        chosen = self._halved(targets, REMEMBERED if self._whole else REMEMBERED_OF_MANY)
        belief = None if self.taught is None else self.taught.belief
        self._factor = _Factor(self.steps, self.hypers, points[chosen], room, self._marks, belief)

    def _expectation(self, points: Indices, targets: Floats, scale: float) -> Expected | None:
        """In units of this scale, and at the points as high in the mean as the targets."""
        if self.taught is None:
            return None
        slope = self.taught.scale / scale
        level = float((targets - slope * self.taught.belief[points]).mean())
        return Expected(self.taught.belief, slope, level)

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
        mean, deviation, _ = self._standard_belief(points)
        return self._shift + self._scale * mean, self._scale * deviation

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
        reduced = None if self._whole else self._factor.reduced(both)
        mean, deviation, amplitude = self._standard_belief(both, reduced)
        means, best, scale = mean[:n, None], np.array([self._targets.min()]), self._scale
        if len(pending):
            lower, known, left = self._beside(both, n, reduced)
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
        slow = _slow(self._objectives[np.isfinite(self._objectives)])
        stretched: Floats = np.where(believed > slow, slow + (believed - slow) / SQUEEZE, believed)
        return stretched

    def _standard_belief(self, points: Indices, reduced: NDArray[Any] | None = None) -> tuple[Floats, Floats, float]:
        """Mean, deviation and amplitude in standard units. `reduced` of the points, if it is known."""
        by_point = np.full(len(self.steps.slots), np.nan)
        by_point[self._points] = _beyond(self._targets, self._points, self._expected)
        mean, variance, amplitude = self._factor.believe(by_point, points, reduced)
        if self._expected is not None:
            mean = mean + self._expected.at(points)
        return mean, np.sqrt(np.maximum(variance, 1e-9) * amplitude), amplitude

    @single_threaded
    def lesson(self, count: int) -> Taught:
        """What it has to teach of the first so many points, in units of what was judged."""
        parts = np.array_split(np.arange(count), 1 + count // AT_ONCE)
        believed = (self._standard_belief(part) for part in parts)
        return Taught(np.concatenate([mean - OPTIMISM * deviation for mean, deviation, _ in believed]), self._scale)

    def _beside(
        self, both: Indices, n: int, reduced: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Of n points and the q after them: the Cholesky factor (q, q) of the covariance of the latter's outcomes, it
        solved for the covariances (q, n), and the share (n,) of the variances that is left once they are known.
        `reduced` of both, if it is known."""
        points, pending = both[:n], both[n:]
        of_points = self._factor.reduced(points) if reduced is None else reduced[:, :n]
        of_pending = self._factor.reduced(pending) if reduced is None else reduced[:, n:]
        shared = self._factor.covariance(points, pending, of_points, of_pending)
        among = self._factor.covariance(pending, pending, of_pending, of_pending)
        among[np.diag_indices(len(among))] += self.hypers.noise + JITTER
        lower = np.linalg.cholesky(among)
        known = scipy.linalg.solve_triangular(lower, shared.T, lower=True, check_finite=False)
        left = 1.0 - (known**2).sum(axis=0) / np.maximum(self._factor.variance(points, of_points), 1e-9)
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


def _taught(space: Space, seed: int, lessons: Lessons, steps: Steps) -> Taught:
    """What a surrogate believes here that has learnt what the other study judged, as the points are there: those after
    the space's in `steps`."""
    teacher = Surrogate(steps, seed, whole=False, taught=_foretold(space, lessons))
    objectives = np.array([np.inf if each is None else each for each in lessons.objectives])
    teacher.learn(np.arange(len(space), len(steps.slots)), objectives)
    return teacher.lesson(len(space))


def _foretold(space: Space, lessons: Lessons | None = None) -> Taught | None:
    """What the space file expects of the space's points, and of those of lessons after them, as they are there; as much
    as in the mean where it expects nothing. None where it tells no two points apart."""
    if space.expected is None or (lessons is not None and len(lessons.expected) != len(lessons.points)):
        return None
    there = space.expected if lessons is None else np.array(lessons.expected, dtype=np.float64)
    known = there[np.isfinite(there)]
    if not len(known) or np.ptp(known) < TOLD_APART:
        return None
    both = space.expected if lessons is None else np.concatenate([space.expected, there])
    level, unit = known.mean(), known.std()
    return Taught(np.where(np.isfinite(both), (both - level) / unit, 0.0), float(unit))


def _elsewhere(space: Space, lessons: Lessons) -> Floats | None:
    """(n, q): the derived quantities of the lessons' points where they were learnt; None where they are not known."""
    found = np.array(lessons.derived, dtype=np.float64)
    return found if found.shape == (len(lessons.points), space.derived.shape[1]) else None


class _Factor:
    """The inverse of the Cholesky factor of the judged points' covariance, a row longer with each that comes, and what
    it makes of the others'. To multiply by it takes some processors half as long as to solve with the factor.

    The multiple of the belief taught is no part of that covariance but is worked out beside it, as in Rasmussen and
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
        """`belief` (N,) is that before anything was judged, if there is one."""
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
        """Of the multiple, when the judged points are known."""
        trend = self._trend[: len(self._points)]
        return 1 / self._hypers.slope + float(trend @ trend)

    def _beyond_process(self, points: Indices, reduced: NDArray[Any] | None) -> Floats:
        """(n,): what the belief has at the points that the process does not have from the judged ones."""
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


def _beyond(targets: Floats, points: Indices, expected: Expected | None) -> Floats:
    """The targets (n,) without what is expected of their points."""
    return targets if expected is None else targets - expected.at(points)


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
