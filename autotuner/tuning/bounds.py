"""What each implementation cannot go below on a problem, by what the device can do at most: the roofline of the whole
device, and of an implementation without matrix units its own."""

from __future__ import annotations

import math

from autotuner.race.plausible import floor_us
from autotuner.spaces.space import BranchPoints, Space
from autotuner.values.outcome import Calibration, Ceilings
from autotuner.values.problem import Problem
from autotuner.values.ratio import combine


def bound_us(branch: BranchPoints, problem: Problem, ceilings: Ceilings, cold: bool) -> float:
    """Microseconds under which no point of the branch can compute the problem."""
    reached = ceilings.model_copy(update={"flops": ceilings.flops * branch.peak_share})
    return floor_us(problem, reached, cold)


def bounds(space: Space, calibration: Calibration) -> tuple[float, ...]:
    """For each branch of the space the lowest objective that a right point of it can have, ln(t_variant / t_baseline);
    -inf where the ceilings of the device are not known."""
    if calibration.ceilings is None:
        return (-math.inf,) * len(space.branches)
    pinned, over = calibration.baseline_us, combine(space.file.objective)
    cold = space.file.cache == "cold"
    return tuple(
        over(
            [
                math.log(bound_us(branch, problem, calibration.ceilings, cold) / us)
                for problem, us in zip(space.file.problems, pinned, strict=True)
            ]
        )
        for branch in space.branches
    )
