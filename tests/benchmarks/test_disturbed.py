"""What a disturbed sweep is compared with, and what does not hold of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from autotuner.store import MeasuredTrial
from autotuner.values.ratio import LogRatio
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from benchmarks.timing.disturbed import Sweep, Truth, unmet

VARIANTS = [
    Variant(family="sdpa", backend="cpu", impl="simd", parameters={"BLOCK_M": 8 << place}) for place in range(3)
]


def trial(number: int, slower: float) -> MeasuredTrial:
    took = {"median_us": 100 * slower, "baseline_us": 100.0, "censored": False}
    log_ratio = LogRatio(low=math.nan, mid=math.log(slower), high=math.nan)
    variant = VARIANTS[number]
    return MeasuredTrial(
        number=number, variant=variant, verdict=Verdict.MEASURED, artifact=None, log_ratio=log_ratio, **took
    )


def sweep(slower: tuple[float, ...], winner: int, confirmed: Mapping[int, float], seconds: float = 100.0) -> Sweep:
    """A sweep that found these of the variants, and in its finals `confirmed` of some."""
    digests = [variant.digest for variant in VARIANTS]
    found = {digests[place]: math.log(ratio) for place, ratio in confirmed.items()}
    estimates = {digests[place]: trial(place, ratio) for place, ratio in enumerate(slower)}
    return Sweep("a sweep", seconds, 0.0, len(slower), 0, 0, False, digests[winner], 0.01, found, estimates)


QUIET = Truth.of(sweep((0.5, 0.8, 1.2), 0, {0: 0.5, 1: 0.8}), sweep((0.5, 0.8, 1.5), 0, {0: 0.52, 1: 0.8}))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (sweep((0.5, 0.8, 1.2), 1, {}), "its winner is behind"),
        (sweep((0.5, 0.8, 1.2), 2, {}), "its winner is behind"),
        (sweep((0.56, 0.8, 1.2), 0, {}), "the largest error of a figure"),
        (sweep((0.5, 0.8, 1.2), 0, {}, seconds=301), "3.0 times as long"),
        (sweep((0.5, 0.8, 1.2), 0, {})._replace(judged=1), "it judged 1 of 3"),
        (sweep((0.5, 0.8, 1.2), 0, {})._replace(left=2), "2 found no calm moment"),
        (sweep((0.5, 0.8, 1.2), 0, {})._replace(protested=True), "it protested"),
    ],
)
def test_each_bound_can_be_broken(other: Sweep, why: str) -> None:
    (said,) = unmet(QUIET, [other])
    assert why in said
