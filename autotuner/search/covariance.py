"""How alike two points of a space are taken to be: the covariance of a Gaussian process, and how it is fitted.

A point is what its parameters' places in their lists of values are. Between two values of a parameter there is a step:
for numbers it grows with the places between them, for strings any two values are one step apart, and a parameter that
does not exist at a point is one step from all its values. Derived quantities (derived.py) are further numbers, which
are as far apart as they differ in doublings. The covariance of two points is a Matern 5/2 function of the
root of the squared steps added up, each in units of its parameter's length (automatic relevance determination);
lengths, noise and the kind of steps maximise the marginal likelihood with weak priors: C. E. Rasmussen and
C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 4 and 5.

An earlier belief, of every point before anything is judged, comes from another study's surrogate or from the space
file. It is added to the process with a factor: M. C. Kennedy and A. O'Hagan, Predicting the Output from a Complex
Computer Code When Fast Approximations Are Available, 2000. The factor is taken to be 1, give or take about as much,
until the points judged here say otherwise.
"""

import copy
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.spaces.space import BranchPoints

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Indices = NDArray[np.int64]

JITTER = 1e-6
"""Variance added to each point's own, relative to that of all, so that a covariance matrix can be factored."""
BOUNDS = ((-4.0, 5.0), (-12.0, 1.0), (-5.0, 5.0), (-8.0, 4.0))
"""Least and greatest value that a fit may choose: of the logarithms of lengths and noise, of the logits of shares, and
of the logarithm of the slope's variance."""


class Hypers(NamedTuple):
    """What is fitted, for the d dimensions of the steps."""

    lengths: Floats
    """(d,): a dimension with a great length matters little."""
    noise: float
    """The variance of a measurement, where 1 is the variance of all."""
    shares: Floats
    """(d,), 0..1: how much of a step does not depend on how far it goes."""
    slope: float = 0.0
    """The variance, around 1, of the factor on the earlier belief; 0 without such a belief."""


class EarlierBelief(NamedTuple):
    """What is believed of all N points before anything is judged."""

    belief: Floats
    """(N,): objectives, shifted and scaled to a mean of about 0 and a variance of about 1."""
    scale: float
    """That scale: one unit of `belief` in units of the objective."""


class Steps:
    """The steps between the values of each dimension of a branch, and points as the values they have. Its d dimensions
    are the parameters that vary and the derived quantities that do.

    A value's slot is its place among all values of all dimensions; each has one more, its first, for points at which it
    does not exist. K slots in all.
    """

    def __init__(self, space: BranchPoints, elsewhere: Floats | None = None) -> None:
        """`elsewhere` (n, q): derived quantities that points have on other problems."""
        rows = space.rows
        columns = [column for column in range(rows.shape[1]) if np.ptp(rows[:, column]) > 0]
        values = [list(list(space.values.values())[column]) for column in columns]
        both = space.derived if elsewhere is None else np.concatenate([space.derived, elsewhere])
        levels = [np.unique(each[np.isfinite(each)]) for each in both.T]
        self._amounts = [(place, each) for place, each in enumerate(levels) if len(each) > 1]
        """Of the derived quantities that vary: their place among all, and what they come to."""
        self.names = [space.parameters[column] for column in columns]
        self.names += [list(space.branch.derived)[place] for place, _ in self._amounts]
        sizes = [len(each) + 1 for each in values] + [len(each) + 1 for _, each in self._amounts]
        self._first = np.cumsum([0, *sizes])
        self.size = int(self._first[-1])
        """K"""
        places = np.concatenate([rows[:, columns].astype(np.int64) + 1, self._places_of(space.derived)], axis=1)
        self.slots = places + self._first[:-1]
        """(N, d)"""
        self.far = [_far(each) for each in values]
        """How far it is between two values, 0..1; each (k, k)."""
        self.other = [1.0 - np.eye(len(far)) for far in self.far]
        """Whether they differ, 0 or 1; for a derived quantity, whose steps have only a length, twice how far."""
        enumerated = [each == list(range(len(each))) and len(each) > 2 for each in values]
        self.enumerated = np.array([*enumerated, *(False for _ in self._amounts)])
        """(d,): whether it is a number that counts up from 0 through three values or more."""
        for _, amounts in self._amounts:
            self.far.append(_far_amounts(amounts))
            self.other.append(2 * self.far[-1])

    def _places_of(self, derived: Floats) -> Indices:
        """(n, .): the place of each derived quantity (n, q) that varies among what it comes to."""
        places = np.zeros((len(derived), len(self._amounts)), dtype=np.int64)
        for column, (place, amounts) in enumerate(self._amounts):
            there = np.isfinite(derived[:, place])
            places[there, column] = np.searchsorted(amounts, derived[there, place]) + 1
        return places

    def beside(self, points: Indices, elsewhere: Floats | None) -> Self:
        """The same with n points more, those after the N: these again, where they have the derived quantities
        `elsewhere` (n, q)."""
        more = self.slots[points]
        if elsewhere is not None:
            first = len(self) - len(self._amounts)
            more[:, first:] = self._places_of(elsewhere) + self._first[first:-1]
        both = copy.copy(self)
        both.slots = np.concatenate([self.slots, more])
        return both

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
        marked = np.zeros((self.size, len(points)), dtype=np.float32)
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


def _far_amounts(amounts: Floats) -> Floats:
    """How far it is between two amounts of a derived quantity, the first for its absence; sorted, in doublings."""
    far = np.ones((len(amounts) + 1, len(amounts) + 1))
    far[0, 0] = 0
    far[1:, 1:] = np.abs(amounts[:, None] - amounts) / np.ptp(amounts)
    return far


def matern(squares: NDArray[Any]) -> NDArray[Any]:
    """Matern 5/2 of squared distances."""
    r = np.sqrt(np.maximum(squares, 0) * 5)
    covariances: NDArray[Any] = (1 + r + r * r / 3) * np.exp(-r)
    return covariances


# Hyperparameters -------------------------------------------------------------------------------------------------


def fit(
    steps: Steps,
    points: Indices,
    targets: Floats,
    earlier: EarlierBelief | None = None,
    settings: SearchSettings = DEFAULT,
) -> Hypers:
    """The hyperparameters of the highest posterior density, by L-BFGS from the priors' centres.

    `points` (n,) and their standardised targets. The amplitude is profiled out.
    """
    d = len(steps)
    bounds = [BOUNDS[0]] * d + [BOUNDS[1]] + [BOUNDS[2]] * d + ([] if earlier is None else [BOUNDS[3]])
    likelihood = Likelihood(steps, points, targets, earlier, settings)
    found = scipy.optimize.minimize(
        likelihood, likelihood.centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 25}
    )
    return _hypers(found.x, d)


def _prior(steps: Steps, earlier: EarlierBelief | None, settings: SearchSettings) -> tuple[Floats, Floats]:
    """Centre and deviation of each hyperparameter's logarithm or logit."""
    d = len(steps)
    shares = np.where(steps.enumerated, settings.share_enumerated, settings.share)
    centre = np.concatenate([np.full(d, settings.log_length), [settings.log_noise], shares])
    of_lengths, of_shares = np.full(d, settings.log_length_deviation), np.full(d, settings.share_deviation)
    deviation = np.concatenate([of_lengths, [settings.log_noise_deviation], of_shares])
    if earlier is None:
        return centre, deviation
    return np.append(centre, settings.log_slope), np.append(deviation, settings.log_slope_deviation)


def _hypers(theta: Floats, d: int) -> Hypers:
    lengths, noise, shares, slope = np.split(theta, [d, d + 1, 2 * d + 1])
    return Hypers(np.exp(lengths), float(np.exp(noise[0])), scipy.special.expit(shares), float(np.exp(slope).sum()))


class Likelihood:
    """Minus the logarithm of the posterior density of the hyperparameters, and its gradient.

    Sums over pairs of points are taken over pairs of slots, of which there are far fewer: as matrices (K, K) that have
    a block for each dimension.
    """

    def __init__(
        self,
        steps: Steps,
        points: Indices,
        targets: Floats,
        earlier: EarlierBelief | None = None,
        settings: SearchSettings = DEFAULT,
    ) -> None:
        self._far: Floats = scipy.linalg.block_diag(*steps.far)
        self._differ: Floats = 0.5 * scipy.linalg.block_diag(*steps.other)
        self._sizes = [len(each) for each in steps.far]
        self._marks = steps.marks(points).astype(np.float64)
        self._along = None if earlier is None else np.outer(earlier.belief[points], earlier.belief[points])
        self._targets = targets
        self.centre, self._deviation = _prior(steps, earlier, settings)
        self._d, self._m = len(steps), len(points)

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        d, m = self._d, self._m
        hypers = _hypers(theta, d)
        lengths, shares = (np.repeat(each, self._sizes)[:, None] for each in (hypers.lengths, hypers.shares))
        steps = ((1 - shares) * self._far + shares * self._differ) / lengths
        r = np.sqrt(5 * (self._marks.T @ steps**2 @ self._marks))
        fall = np.exp(-r)
        covariance = (1 + r + r * r / 3) * fall
        if self._along is not None:
            covariance += hypers.slope * self._along
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
        by_square = self._marks @ (slope * (-5 / 6) * (1 + r) * fall) @ self._marks.T
        gradient = np.empty_like(theta)
        gradient[:d] = -2 * self._by_dimension(by_square * steps**2)
        gradient[d] = np.trace(slope) * hypers.noise
        by_share = 2 * self._by_dimension(by_square * steps * (self._differ - self._far) / lengths)
        gradient[d + 1 : 2 * d + 1] = by_share * hypers.shares * (1 - hypers.shares)
        if self._along is not None:
            gradient[-1] = (slope * self._along).sum() * hypers.slope
        off = (theta - self.centre) / self._deviation
        return float(value + 0.5 * (off**2).sum()), gradient + off / self._deviation

    def _by_dimension(self, slots: Floats) -> Floats:
        """(d,): the sum of each dimension's block."""
        sums: Floats = np.add.reduceat(slots.sum(axis=1), np.cumsum([0, *self._sizes[:-1]]))
        return sums
