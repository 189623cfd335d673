"""How good a search was: the score of "A Methodology for Comparing Auto-Tuning Optimization Algorithms".

Willemsen, Schoonhoven, Filipovič, Tørring, van Nieuwpoort and van Werkhoven, Future Generation Computer Systems 159,
2024. 0 is random search, 1 a search that has the optimum from the start. docs/method/replay.md says all of it in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import PchipInterpolator

from autotuner.values.errors import InputError

Floats = NDArray[np.float64]
Axis = Literal["time", "clock", "evaluations"]
AXES: tuple[Axis, ...] = ("time", "clock", "evaluations")
"""Worker-seconds of the evaluations that have ended; seconds since the start, times the workers; a plain count. The
first two are the same for one worker."""

START, END = 0.01, 0.95
"""The axis begins and ends where random search has closed these shares of the gap between median and optimum."""

TIME_POINTS = 1000
BOOTSTRAPS = 1000
WITHIN = 0.01
"""A search has found the optimum when it is this close, relative."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What one search did, its n evaluations in the order in which they ended.

    `rows` (n,): the points, by their places in the space. `ends` (n,): virtual seconds from the start, the sampler's
    own among them. `work` (n,): of those, what each took from its worker, who may have waited for the proposal.
    `sampler` (n,): the sampler's seconds until each was proposed, added up. `workers`: how many evaluations were in
    flight.
    """

    rows: NDArray[np.int64]
    ends: Floats
    work: Floats
    sampler: Floats
    workers: int = 1

    def __len__(self) -> int:
        return len(self.rows)

    def spent(self, axis: Axis) -> Floats:
        """How much of the axis (n,) has passed at the end of each evaluation."""
        if axis == "clock":
            return self.ends * self.workers
        return np.cumsum(self.work) if axis == "time" else np.arange(1.0, len(self) + 1)


class Score(NamedTuple):
    """Of several searches of one space on one axis."""

    p: float
    low: float
    high: float
    """The 95 % interval of `p`, by a bootstrap over the searches."""
    within: float
    """The share of the searches that end within 1 % of the optimum."""


class Curve(NamedTuple):
    """Best milliseconds so far along an axis, each (k,)."""

    x: Floats
    best: Floats
    """Of the mean rank, which is what is scored."""
    low: Floats
    high: Floats
    """Of the tenth and the ninetieth percentile of the ranks."""
    random: Floats


class Yardstick:
    """What random search would do in a recorded space, and by it what a search is worth."""

    def __init__(self, ms: Floats, cost: Floats) -> None:
        """`ms` (N,): milliseconds, NaN where a point failed. `cost` (N,): seconds that its evaluation takes.

        Raises InputError when there is nothing to search for.
        """
        self.ms, self.cost = ms, cost
        measured = ~np.isnan(ms)
        self.ascending = np.sort(ms[measured])
        self.optimum, self.median = float(self.ascending[0]), float(np.median(self.ascending))
        if not self.optimum < self.median:
            raise InputError("the optimum is no faster than the median: there is nothing to search for")
        self._seconds_each = float(cost[measured].mean())
        """What an evaluation of random search takes, with a share of the failures."""
        if not measured.all():
            self._seconds_each += float((~measured).mean() * cost[~measured].mean())

    def _evaluations_until(self, share: float) -> int:
        """After how many evaluations random search is expected to have closed that share of the gap."""
        target = self.optimum + (self.median - self.optimum) * (1 - share)
        count = len(self.ascending)
        worse = count - int(np.searchsorted(self.ascending, target, side="right"))
        return math.ceil(worse / (count + 1 - worse))

    @cached_property
    def evaluations(self) -> int:
        """The budget in evaluations."""
        return self._evaluations_until(END)

    @cached_property
    def seconds(self) -> float:
        """The budget in worker-seconds."""
        return self.evaluations * float(np.median(self.cost))

    def grid(self, axis: Axis) -> Floats:
        """Where curves are compared: TIME_POINTS in worker-seconds, or after each evaluation."""
        first = self._evaluations_until(START)
        if axis == "evaluations":
            return np.arange(first, max(self.evaluations, first + 1), dtype=np.float64)
        return np.linspace(first * float(np.median(self.cost)), self.seconds, TIME_POINTS)

    def random(self, axis: Axis) -> Floats:
        """The calculated curve of random search on the grid, milliseconds."""
        grid = self.grid(axis)
        return self._random_after(grid if axis == "evaluations" else grid / self._seconds_each)

    def _random_after(self, evaluations: ArrayLike) -> Floats:
        """Of m draws without replacement from N ascending ranks the least is expected at (N + 1) / (m + 1).

        Between whole numbers of evaluations the curve is a monotone cubic.
        """
        draws = np.maximum(np.round(np.asarray(evaluations, dtype=np.float64)), 1).astype(np.int64)
        count = len(self.ascending)
        from_worst = np.minimum(np.round(draws * (count + 1) / (draws + 1)).astype(np.int64), count - 1)
        best = self.ascending[::-1][from_worst]
        distinct, first = np.unique(draws, return_index=True)
        if len(draws) <= 2 or len(distinct) < 2:
            return best
        return np.asarray(PchipInterpolator(distinct, best[first])(np.linspace(draws[0], draws[-1], len(draws))))

    def ranks(self, traces: Sequence[Trace], axis: Axis) -> Floats:
        """How many points of the space are faster than the best so far: (searches, points of the grid)."""
        grid = self.grid(axis)
        best = np.stack([self._best_so_far(trace, axis, grid) for trace in traces])
        return np.searchsorted(self.ascending, best, side="left").astype(np.float64)

    def _best_so_far(self, trace: Trace, axis: Axis, grid: Floats) -> Floats:
        """On the grid; before the first success that success, and the slowest point when there is none at all."""
        found = np.fmin.accumulate(self.ms[trace.rows]) if len(trace) else np.empty(0)
        some = ~np.isnan(found)
        if not some.any():
            return np.full(len(grid), self.ascending[-1])
        passed = np.searchsorted(trace.spent(axis)[some], grid, side="right")
        return np.asarray(found[some][np.maximum(passed - 1, 0)])

    def _of_rank(self, ranks: Floats) -> Floats:
        """The milliseconds at a rank, which need not be a whole number."""
        return np.asarray(self.ascending[np.clip(np.round(ranks).astype(np.int64), 0, len(self.ascending) - 1)])

    def _performance(self, mean_ranks: Floats, axis: Axis) -> Floats:
        """P of mean-rank curves (..., points of the grid): the mean share of random search's gap that is closed.

        Where random search itself is at the optimum there is nothing to win, and the point does not count.
        """
        random = self.random(axis)
        counts = random > self.optimum
        shares = (random - self._of_rank(mean_ranks))[..., counts] / (random - self.optimum)[counts]
        return np.asarray(shares.mean(axis=-1))

    def bootstrap(self, ranks: Floats, axis: Axis, seed: int = 0) -> Floats:
        """P of BOOTSTRAPS resamples of the searches, with replacement."""
        count = len(ranks)
        drawn = np.random.default_rng(seed).integers(0, count, (BOOTSTRAPS, count))
        weights = np.stack([np.bincount(each, minlength=count) for each in drawn]).astype(np.float64)
        return self._performance(weights @ ranks / count, axis)

    def score(self, traces: Sequence[Trace], axis: Axis) -> tuple[Score, Floats]:
        """The score, and P of each resample. Raises ValueError when there is no trace."""
        ranks = self.ranks(traces, axis)
        resampled = self.bootstrap(ranks, axis)
        low, high = np.percentile(resampled, (2.5, 97.5))
        within = self._of_rank(ranks[:, -1]) <= self.optimum * (1 + WITHIN)
        p = float(self._performance(ranks.mean(axis=0), axis))
        return Score(p, float(low), float(high), float(within.mean())), resampled

    def curve(self, traces: Sequence[Trace], axis: Axis, points: int = 100) -> Curve:
        """The curve of these searches and that of random search, thinned to `points` at most."""
        grid, ranks = self.grid(axis), self.ranks(traces, axis)
        kept = np.unique(np.linspace(0, len(grid) - 1, min(points, len(grid))).round().astype(np.int64))
        low, high = np.percentile(ranks[:, kept], (10, 90), axis=0)
        best = self._of_rank(ranks.mean(axis=0)[kept])
        return Curve(grid[kept], best, self._of_rank(low), self._of_rank(high), self.random(axis)[kept])


def mean_score(scores: Sequence[tuple[Score, Floats]]) -> Score:
    """The mean over spaces; its interval from the mean of their resamples, which are independent."""
    resampled = np.mean([each for _, each in scores], axis=0)
    low, high = np.percentile(resampled, (2.5, 97.5))
    p, within = (float(np.mean([getattr(score, name) for score, _ in scores])) for name in ("p", "within"))
    return Score(p, float(low), float(high), within)
