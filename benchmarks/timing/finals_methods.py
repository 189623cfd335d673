"""Which statistics the finals should use, and in how many processes: the methods that were compared.

Here a finalist is a number a process, drawn and not raced, so that ten thousands of finals take seconds. What
benchmarks/timing/simulated_truth.py runs is the real thing; it also runs this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from autotuner.measure.confirm import CROWN_ALPHA, FINAL_BLOCKS, LEVEL
from autotuner.values.conditions import TIE

Floats = NDArray[np.float64]

COUNTS = range(3, 10)
BLOCK_NOISE = 0.005 * math.sqrt(math.pi / FINAL_BLOCKS)
"""Of the median over a heat's blocks; a ratio has the noise of two samples."""


class Spread(NamedTuple):
    """How much a finalist differs from process to process: its standard deviation."""

    name: str
    even: float
    odd: float

    def of(self, finalists: int) -> Floats:
        """For each finalist."""
        return np.where(np.arange(finalists) % 2 == 0, self.even, self.odd)


SPREADS = (
    Spread("0.2 %", 0.002, 0.002),
    Spread("0.5 %", 0.005, 0.005),
    Spread("1 %", 0.01, 0.01),
    Spread("0.1 % and 1 %", 0.001, 0.01),
)
FINALISTS = (2, 9, 20)


class Variance(NamedTuple):
    """What a method takes for the variance between processes, and its degrees of freedom."""

    name: str
    of: Callable[[Floats], Floats]
    """From the own variances, [final][finalist]."""
    freedom: Callable[[int, int], int]
    """From the numbers of processes and of finalists."""


def _common(own: Floats) -> Floats:
    return np.broadcast_to(own.mean(axis=1, keepdims=True), own.shape)


METHODS = (
    Variance("own", lambda own: own, lambda processes, finalists: processes - 1),
    Variance("pooled", _common, lambda processes, finalists: (processes - 1) * finalists),
    Variance("larger", lambda own: np.maximum(own, _common(own)), lambda processes, finalists: processes - 1),
    Variance(
        "larger, pooled freedom",
        lambda own: np.maximum(own, _common(own)),
        lambda processes, finalists: (processes - 1) * finalists,
    ),
)


def rows(finals: int = 2000, seed: int = 0) -> Iterator[dict[str, object]]:
    """A row for each spread, number of finalists, number of processes and method; shares of the finals."""
    draw = np.random.default_rng(seed)
    for spread in SPREADS:
        for finalists in FINALISTS:
            for processes in COUNTS:
                yield from _compared(spread, finalists, processes, finals, draw)


def _compared(
    spread: Spread, finalists: int, processes: int, finals: int, draw: np.random.Generator
) -> Iterator[dict[str, object]]:
    equal = np.full(finalists, math.log(0.8))
    two, better = equal.copy(), equal.copy()
    two[2:] += 0.05
    better[0] -= math.log(1.02)
    drawn = {name: _drawn(truth, spread, processes, finals, draw) for name, truth in
             (("equal", equal), ("two", two), ("better", better))}  # fmt: skip
    for method in METHODS:
        covered, leader_covered = _coverage(drawn["equal"], equal, method)
        crowned = {name: _crowned(values, method) for name, values in drawn.items()}
        found = crowned["better"] & (_leaders(drawn["better"]) == 0)
        yield {
            "between_processes": spread.name,
            "finalists": finalists,
            "processes": processes,
            "method": method.name,
            "covered": round(covered, 4),
            "leader_covered": round(leader_covered, 4),
            "crowned_all_equal": round(float(crowned["equal"].mean()), 4),
            "crowned_two_equal_ahead": round(float(crowned["two"].mean()), 4),
            "found_2_percent": round(float(found.mean()), 4),
        }


def _drawn(truth: Floats, spread: Spread, processes: int, finals: int, draw: np.random.Generator) -> Floats:
    """ln(t_variant / t_baseline): [final][process][finalist]. The baseline has the smaller spread."""
    shape = (finals, processes, len(truth))
    noise = draw.normal(0.0, BLOCK_NOISE, shape)
    own = draw.normal(0.0, 1.0, shape) * spread.of(len(truth))
    baseline = draw.normal(0.0, spread.even, (finals, processes, 1))
    return np.asarray(truth + own + noise - baseline, dtype=np.float64)


def _leaders(values: Floats) -> NDArray[np.intp]:
    return np.asarray(values.mean(axis=1).argmin(axis=1))


def _coverage(values: Floats, truth: Floats, method: Variance) -> tuple[float, float]:
    """The share of intervals that hold the truth: of all finalists, and of the leaders."""
    finals, processes, finalists = values.shape
    variance = method.of(values.var(axis=1, ddof=1))
    width = stdtrit(method.freedom(processes, finalists), (1 + LEVEL) / 2) * np.sqrt(variance / processes)
    held = np.abs(values.mean(axis=1) - truth) <= width
    return float(held.mean()), float(held[np.arange(finals), _leaders(values)].mean())


def _crowned(values: Floats, method: Variance) -> NDArray[np.bool_]:
    """Whether the leader is shown to be faster than every other one, by Holm's procedure."""
    finals, processes, finalists = values.shape
    leader = values[np.arange(finals), :, _leaders(values)][:, :, None]
    ahead = values - leader
    others = np.arange(finalists) != _leaders(values)[:, None]
    variance = method.of(ahead.var(axis=1, ddof=1)[others].reshape(finals, finalists - 1))
    excess = (ahead.mean(axis=1) - math.log1p(TIE))[others].reshape(finals, finalists - 1)
    freedom = method.freedom(processes, finalists - 1)
    p = np.sort(stdtr(freedom, -excess / np.sqrt(variance / processes)), axis=1)
    return np.asarray((p <= CROWN_ALPHA / np.arange(finalists - 1, 0, -1)).all(axis=1), dtype=np.bool_)
