"""The judged trials of a study as points of its space: where variants were rejected, said by the fewest values; and
what the evolutionary sampler's surrogate believes after them, whichever sampler proposed them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from autotuner.race.statistics import SIGMAS
from autotuner.search.settings import DEFAULT
from autotuner.search.surrogate import Surrogate
from autotuner.spaces.space import Space
from autotuner.store import JudgedTrial
from autotuner.values.errors import StoreError
from autotuner.values.model import Model
from autotuner.values.ratio import UNCONFIRMED, LogRatio, speedup_of
from autotuner.values.variant import Value

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


class JudgedPoints:
    """What the surrogate and the tables of rejects need of the trials, in the order of their ends."""

    def __init__(self, space: Space, trials: Sequence[JudgedTrial], corrections: Mapping[int, float]) -> None:
        """`corrections`: objectives that count instead of those of the search, by the trial's number.

        Raises StoreError for a trial whose point the space does not have.
        """
        objectives = [
            corrections.get(each.number, each.objective) if math.isfinite(each.objective) else math.inf
            for each in trials
        ]
        places = [space.index_of(each.point) for each in trials]
        if None in places:
            odd = trials[places.index(None)].number
            raise StoreError(f"trial {odd} is of a point that the study's space does not have: restore a copy")
        self.points = np.array(places, dtype=np.int64)
        self.objectives = np.array(objectives, dtype=np.float64)
        self.measured = np.isfinite(self.objectives)
        self.confirmed = np.array([each.number in corrections for each in trials], dtype=bool)
        """Those whose objective is no estimate of the search."""
        self.codes = [each.code for each in trials]

    def __len__(self) -> int:
        return len(self.points)


LEAST = 3
"""Fewest rejects of a region."""
PASS = 3
"""Rejects that weigh as much as one variant that passed: a region has more than three quarters rejects."""


class RejectedWhere(Model):
    """A value, or two of different parameters, with which all or most variants were rejected."""

    where: dict[str, Value]
    judged: int
    rejected: int
    codes: dict[str, int] = Field(description="of the failures, the most frequent first")


def rejected_where(
    space: Space, points: Indices, codes: Sequence[str | None]
) -> tuple[tuple[RejectedWhere, ...], dict[str, int]]:
    """Regions of the judged points (m,), the clearest first, and the codes of the rejects that are in none of them.

    `codes` say why each was rejected, None for what passed. One region is found after the other, each among the trials
    that the ones before left over (separate and conquer: J. Fürnkranz, 1999), by its rejects less its passes, weighted;
    of equals one value comes before two. The counts are of all trials of the region.
    """
    rows, bad = space.rows[points], np.array([code is not None for code in codes], dtype=np.bool_)
    left = np.ones(len(rows), dtype=np.bool_)
    found = []
    while bad[left].any():
        columns = _clearest(rows, bad, left)
        if columns is None:
            break
        inside = np.logical_and.reduce([rows[:, column] == place for column, place in columns])
        left &= ~inside
        names = {space.parameters[column]: place for column, place in columns}
        found.append(
            RejectedWhere(
                where={name: space.values[name][place] for name, place in names.items()},
                judged=int(inside.sum()),
                rejected=int((inside & bad).sum()),
                codes=_counts(codes, inside),
            )
        )
    return tuple(found), _counts(codes, left)


def _clearest(rows: NDArray[np.int16], bad: Mask, left: Mask) -> list[tuple[int, int]] | None:
    """The columns of the clearest region and its values' places there; None when no region is clear."""
    best, clearest = 0, None
    every = range(rows.shape[1])
    for columns in map(list, chain(combinations(every, 1), combinations(every, 2))):
        among = left & (rows[:, columns] >= 0).all(axis=1)
        if not bad[among].any():
            continue
        places, region = np.unique(rows[among][:, columns], axis=0, return_inverse=True)
        judged, rejected = np.bincount(region.ravel()), np.bincount(region.ravel(), bad[among]).astype(int)
        score = np.where(rejected >= LEAST, rejected - PASS * (judged - rejected), 0)
        top = int(np.argmax(score))
        if score[top] > best:
            best, clearest = int(score[top]), list(zip(columns, places[top].tolist(), strict=True))
    return clearest


def _counts(codes: Sequence[str | None], among: Mask) -> dict[str, int]:
    counted = Counter(code for code, inside in zip(codes, among, strict=True) if inside and code is not None)
    return dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))


SAMPLE = 20_000
"""Points, by lot, that are looked at in a space that is too large to look at all of it."""
FAST = 0.25
"""Quantile of the believed objectives at which the fast end begins, 0..1."""
PROMISING = 5
"""Promising points, at most, that are listed."""
BEST = 4
"""Best measured points of a sampled space whose neighbours are looked at, too."""
LEARNED = 0.7
"""Share of the trials, the first to end, from which the checked beliefs are learned."""
CHECKED = 5
"""Fewest measured trials after these for a check of the beliefs."""


class ValueEffect(Model):
    """What is believed of one value of a parameter."""

    value: Value
    points: int = Field(description="points with it that were looked at")
    judged: int = Field(description="trials with it")
    speedup: float = Field(description="geometric mean of the believed t_baseline / t_variant over those points")
    slower: float = Field(description="that mean's time over the best value's, less 1")
    best: float = Field(description="the believed speedup of the fastest of those points")


class ParameterEffect(Model):
    """How much a parameter matters, alone; see `share_alone`."""

    parameter: str
    share: float = Field(description="of the variance of the believed objective, 0..1")
    fast_share: float = Field(description="the same where all that is not in the fastest quarter counts as its edge")
    values: tuple[ValueEffect, ...] = Field(description="the best mean first")


class PairEffect(Model):
    """How much two parameters matter together, beyond the two alone; see `share_together`."""

    parameters: tuple[str, str]
    share: float
    fast_share: float


class Belief(Model):
    """What is believed of a point, with the ends of the interval that should hold its speedup in 95 of 100 cases."""

    point: dict[str, Value]
    low: float
    speedup: float = Field(description="t_baseline / t_variant")
    high: float
    judged: bool
    gain: float | None = Field(
        default=None, description="not judged: expected improvement over the best so far, of ln(t_variant / t_baseline)"
    )


class Trust(Model):
    """How well the beliefs held: those from the trials that ended first, about the ones measured after them.

    The later trials are not drawn by lot: a sampler that learns chose them as fast ones, which are harder to put in
    order than any.
    """

    learned: int = Field(description="trials that were learned from")
    checked: int = Field(description="measured trials after them")
    rank_correlation: float | None = Field(description="Spearman's, of believed and measured; None: all were alike")
    within: float = Field(description="the share of the measured that lay within the believed 95 % interval")


class Beliefs(Model):
    """What the surrogate believes after all trials of the study."""

    standing: Literal["unconfirmed"] = Field(default=UNCONFIRMED, description="of all that is believed")
    looked_at: int = Field(description="points that the shares and means are over: all valid ones, or a sample")
    parameters: tuple[ParameterEffect, ...] = Field(description="that vary, the greatest share first")
    pairs: tuple[PairEffect, ...] = Field(description="the greatest share first")
    best: Belief = Field(description="the point believed to be the fastest of all, judged or not")
    promising: tuple[Belief, ...] = Field(description="not judged, the greatest expected improvement first")
    gain: float = Field(description="the largest expected improvement, of ln(t_variant / t_baseline); 0: none is left")
    converged: bool = Field(description="it is below the tie band: what is left is not expected to be told apart")
    trust: Trust | None = Field(description="None: too few were measured in the later part of the study")


def surrogate_beliefs(space: Space, trials: JudgedPoints, seed: int, tie: float) -> Beliefs | None:
    """The beliefs after these trials; None where nothing was measured. `tie` is relative."""
    surrogates = _Surrogates(space, seed, trials.points, trials.objectives)
    if not surrogates.known:
        return None
    points = surrogates.known_of(_looked_at(space, seed))
    mean = surrogates.believe(points)[1]
    edge = np.minimum(mean, np.quantile(mean, FAST))
    columns = {name: space.rows[points, place] for place, name in enumerate(space.parameters)}
    varying = [name for name, column in columns.items() if np.ptp(column) > 0]
    parameters = [
        ParameterEffect(
            parameter=name,
            share=share_alone(columns[name], mean),
            fast_share=share_alone(columns[name], edge),
            values=_values(space, name, columns[name], mean, trials),
        )
        for name in varying
    ]
    pairs = [
        PairEffect(
            parameters=(one, other),
            share=share_together(columns[one], columns[other], mean),
            fast_share=share_together(columns[one], columns[other], edge),
        )
        for one, other in combinations(varying, 2)
    ]
    parameters.sort(key=lambda each: -each.share)
    best, promising = _candidates(space, surrogates, trials, points)
    gain = promising[0].gain if promising else None
    return Beliefs(
        looked_at=len(points),
        parameters=tuple(parameters),
        pairs=tuple(sorted(pairs, key=lambda each: -each.share)),
        best=best,
        promising=promising,
        gain=gain or 0.0,
        converged=(gain or 0.0) < math.log1p(tie),
        trust=_trust(space, trials, seed),
    )


def _looked_at(space: Space, seed: int) -> Indices:
    """All points of the space, or of a large one a sample."""
    if len(space) <= DEFAULT.screened_whole:
        return np.arange(len(space))
    drawn: Indices = np.random.default_rng([seed, len(space)]).choice(len(space), size=SAMPLE, replace=False)
    return np.sort(drawn)


def _values(
    space: Space, name: str, column: NDArray[np.int16], mean: Floats, trials: JudgedPoints
) -> tuple[ValueEffect, ...]:
    there = [place for place in range(len(space.values[name])) if (column == place).any()]
    means = {place: float(mean[column == place].mean()) for place in there}
    tried = space.rows[trials.points, space.parameters.index(name)]
    least = min(means.values())
    return tuple(
        ValueEffect(
            value=space.values[name][place],
            points=int((column == place).sum()),
            judged=int((tried == place).sum()),
            speedup=speedup_of(means[place]),
            slower=math.expm1(means[place] - least),
            best=speedup_of(float(mean[column == place].min())),
        )
        for place in sorted(there, key=lambda each: (means[each], each))
    )


class _Surrogates:
    """A surrogate for each branch of which something was measured; of others nobody believes anything."""

    def __init__(self, space: Space, seed: int, points: Indices, objectives: Floats) -> None:
        self._space = space
        self._best = float(objectives.min(initial=np.inf))
        self.known: dict[int, Surrogate] = {}
        for place, mine, inside in space.parts(points):
            branch = space.branches[place]
            surrogate = Surrogate.of(branch, seed, whole=len(branch) <= DEFAULT.screened_whole)
            if np.isfinite(objectives[mine]).any() and surrogate.learn(inside, objectives[mine]):
                self.known[place] = surrogate

    def known_of(self, points: Indices) -> Indices:
        """Those of the points that something is believed of."""
        known = np.zeros(len(points), dtype=np.bool_)
        for place, mine, _ in self._space.parts(points):
            known |= mine & (place in self.known)
        return points[known]

    def believe(self, points: Indices) -> tuple[Floats, Floats, Floats]:
        """The ends and, between them, the middle of the interval that should hold each objective (n,): low, mid, high;
        as measured."""
        ends = np.full((3, len(points)), np.nan)
        for place, mine, inside in self._space.parts(points):
            if place in self.known and len(inside):
                mean, deviation = self.known[place].believe(inside)
                for row, sigmas in enumerate((-SIGMAS, 0.0, SIGMAS)):
                    ends[row, mine] = self.known[place].as_measured(mean + sigmas * deviation)
        return ends[0], ends[1], ends[2]

    def gains(self, points: Indices) -> Floats:
        """The expected improvement over the best of all branches at each point (n,)."""
        gains = np.zeros(len(points))
        for place, mine, inside in self._space.parts(points):
            if place in self.known and len(inside):
                gains[mine] = np.exp(self.known[place].gains(inside, inside[:0], self._best))
        return gains


def _candidates(
    space: Space, surrogates: _Surrogates, trials: JudgedPoints, points: Indices
) -> tuple[Belief, tuple[Belief, ...]]:
    """The point believed to be the fastest, and those that are expected to improve most on what was measured."""
    if len(points) < len(space):  # a sample: what is near the best is not left to it
        elites = trials.points[np.argsort(trials.objectives, kind="stable")[:BEST]]
        near = [space.neighbours(int(elite), radius=int(space.rows.max())) for elite in elites]
        points = surrogates.known_of(np.unique(np.concatenate([points, trials.points, *near])))
    ends = surrogates.believe(points)

    def belief(place: int, gain: float | None) -> Belief:
        low, mid, high = (float(each[place]) for each in ends)
        found, point = LogRatio(low=low, mid=mid, high=high).speedup, int(points[place])
        return Belief(
            point=space.point(point),
            low=found.low,
            speedup=found.mid,
            high=found.high,
            judged=point in trials.points,
            gain=gain,
        )

    left = np.flatnonzero(~np.isin(points, trials.points))
    gains = surrogates.gains(points[left])
    first = np.argsort(-gains, kind="stable")[:PROMISING]
    promising = tuple(belief(int(left[place]), float(gains[place])) for place in first)
    return belief(int(np.argmin(ends[1])), None), promising


def _trust(space: Space, trials: JudgedPoints, seed: int) -> Trust | None:
    learned = int(LEARNED * len(trials.points))
    surrogates = _Surrogates(space, seed, trials.points[:learned], trials.objectives[:learned])
    rest = np.flatnonzero(trials.measured[learned:]) + learned
    rest = rest[np.isin(trials.points[rest], surrogates.known_of(trials.points[rest]))]
    if len(rest) < CHECKED:
        return None
    low, mid, high = surrogates.believe(trials.points[rest])
    found = trials.objectives[rest]
    return Trust(
        learned=learned,
        checked=len(rest),
        rank_correlation=_rank_correlation(mid, found),
        within=float(((low <= found) & (found <= high)).mean()),
    )


def _rank_correlation(one: Floats, other: Floats) -> float | None:
    """Spearman's, equal values with the mean of their ranks; None where one side has a single value."""
    if not (np.ptp(one) and np.ptp(other)):
        return None
    from scipy.stats import spearmanr  # 0.3 s to import, and only this command needs it

    return float(spearmanr(one, other).statistic)


# How much of a function's variance over the points of a space each parameter explains, and each two beyond that. The
# functional decomposition of variance: I. M. Sobol, Sensitivity Estimates for Nonlinear Mathematical Models, 1993; of a
# model fitted to a search's trials: F. Hutter, H. Hoos and K. Leyton-Brown, An Efficient Approach for Assessing
# Hyperparameter Importance, 2014. They average over a product space with its parameters drawn independently. The valid
# points are no such space, and what was excluded must not be asked for: the averages are over the valid points, each
# with the same weight (as with G. Hooker, Generalized Functional ANOVA Diagnostics for High-Dimensional Functions of
# Dependent Variables, 2007). Where constraints tie parameters to each other, each also explains part of what the others
# do, so the shares can overlap and need not add up to 1.

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
