"""How much of a function's variance over the points of a space each parameter explains, and each two beyond that.

The functional decomposition of variance: I. M. Sobol, Sensitivity Estimates for Nonlinear Mathematical Models, 1993;
of a model fitted to a search's trials: F. Hutter, H. Hoos and K. Leyton-Brown, An Efficient Approach for Assessing
Hyperparameter Importance, 2014. They average over a product space with its parameters drawn independently. The valid
points are no such space, and what was excluded must not be asked for: the averages are over the valid points, each with
the same weight (as with G. Hooker, Generalized Functional ANOVA Diagnostics for High-Dimensional Functions of Dependent
Variables, 2007). Where constraints tie parameters to each other, each also explains part of what the others do, so the
shares can overlap and need not add up to 1.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int16]


def share_alone(column: Places, function: Floats) -> float:
    """The share of the variance of `function` (n,) that a parameter explains: the variance of its conditional means.

    `column` (n,) has the place of the parameter's value at each point, -1 where it does not exist. Only what lies
    between its values counts; whether it exists is an effect of another parameter. 0..1.
    """
    there = column >= 0
    return _part(_between(column[there], function[there]), function)


def share_together(one: Places, other: Places, function: Floats) -> float:
    """The share that two parameters explain together beyond the two alone, at the points where both exist. 0..1.

    How far their joint conditional means are from the nearest sum of a function of the one and a function of the other,
    each pair of values weighted with its points.
    """
    there = (one >= 0) & (other >= 0)
    if not there.any():
        return 0.0
    _, first = np.unique(one[there], return_inverse=True)
    _, second = np.unique(other[there], return_inverse=True)
    rows, columns = int(first.max()) + 1, int(second.max()) + 1
    cells = first * columns + second
    points = np.bincount(cells, minlength=rows * columns)
    filled = np.flatnonzero(points)
    means = np.bincount(cells, function[there], minlength=rows * columns)[filled] / points[filled]
    sums = np.zeros((len(filled), rows + columns))
    sums[np.arange(len(filled)), filled // columns] = 1
    sums[np.arange(len(filled)), rows + filled % columns] = 1
    weights = np.sqrt(points[filled])
    nearest = np.linalg.lstsq(sums * weights[:, None], means * weights, rcond=None)[0]
    return _part(float((((means - sums @ nearest) * weights) ** 2).sum()), function)


def _between(column: Places, function: Floats) -> float:
    """Sum of the squares between the values' means."""
    if not len(column):
        return 0.0
    _, places, points = np.unique(column, return_inverse=True, return_counts=True)
    means = np.bincount(places, function) / points
    return float((points * (means - function.mean()) ** 2).sum())


def _part(squares: float, function: Floats) -> float:
    whole = float(((function - function.mean()) ** 2).sum())
    return min(squares / whole, 1.0) if whole > 1e-12 else 0.0
