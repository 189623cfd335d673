"""A slower speed of a baseline, by what looks at it have found."""

from __future__ import annotations

import pytest

from autotuner.tuning.run.calm import STEADY_S, Steady

PAUSE_S = STEADY_S / 4


def seen(*looks: float) -> tuple[float, ...]:
    """What is believed after these looks at a baseline that takes 100 us when it is fast."""
    steady, found = Steady(0.1), tuple[float, ...]()
    for us in looks:
        found = steady.look([us], [100.0], PAUSE_S)
    return found


@pytest.mark.parametrize(
    "looks", [(121, 120, 122, 120), (121, 100, 120, 122, 101, 120), (121, 128, 120, 134, 122, 120)]
)
def test_four_looks_that_agree_are_believed_whatever_others_found(looks: tuple[float, ...]) -> None:
    assert seen(*looks) == (122,)


@pytest.mark.parametrize(
    "looks",
    [
        (120, 121, 122),
        (120, 125, 130, 134, 112, 116),
        (140, 141, 140, 142),
        (120, 120, 120, 130, 125, 134, 112, 116, 129),
    ],
)
def test_too_few_that_agree_too_slow_ones_and_old_ones_are_not(looks: tuple[float, ...]) -> None:
    assert seen(*looks) == ()
