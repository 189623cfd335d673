"""What this machine can judge, and in what time; and what no implementation can go below: the roofline of the whole
device, and of an implementation without matrix units its own."""

import math
from collections.abc import Sequence

from autotuner.devices.environment import usable_memory
from autotuner.devices.kind import DeviceKind
from autotuner.race.plausible import floor_us
from autotuner.run.local import Deadlines
from autotuner.spaces.space import BranchPoints, Space, SpaceFile
from autotuner.values.errors import SpaceError
from autotuner.values.outcome import Calibration, Ceilings
from autotuner.values.problem import Problem
from autotuner.values.ratio import combine

LEAST_BYTES = 1 << 30
"""Memory without which no process that imports torch gets far."""
LONGEST_S, TOLD_S = 1800.0, 30.0
"""Seconds of a reference from which on a problem is refused, and from which on it is told what it takes."""
REFERENCES = 4
"""References of a problem that are drawn before its first variant is judged, about."""
SLOW = 4.0
"""How many times as long as a reference a step may take: the forward of a slow variant, or several."""


def require_all(file: SpaceFile, kind: DeviceKind) -> None:
    """Raises SpaceError for a problem of the space that this machine has not the memory or the time to judge."""
    here = usable_memory()
    for index, problem in enumerate(file.problems):
        where, wanted = f"{file.path}: problems[{index}]", max(LEAST_BYTES, kind.copies * problem.bytes)
        if here < wanted:
            needs = f"{wanted / 2**30:,.0f} GiB of memory, and {here / 2**30:,.1f} GiB may be used here"
            advice = "choose smaller sizes, or give the container more memory"
            raise SpaceError(f"{where}: judging {problem} takes {needs}; {advice}")
        if (seconds := reference_s(problem, kind)) > LONGEST_S:
            raise SpaceError(
                f"{where}: {problem} has {problem.flops / 1e12:,.1f} TFLOP: a reference of it takes about"
                f" {seconds / 3600:,.1f} hours here, and {REFERENCES} come before the first variant; tune shorter"
                " lengths"
            )


def reference_s(problem: Problem, kind: DeviceKind) -> float:
    """Seconds of a float64 reference with its tolerances, about."""
    return problem.flops / kind.reference_flops


def slow_words(problems: Sequence[Problem], kind: DeviceKind) -> list[str]:
    """What a person has to know of problems that take long, a line each."""
    return [
        f"{problem}: a reference takes about {seconds / 60:.0f} minutes here, and {REFERENCES} come before the first"
        " variant; deadlines are as much longer"
        for problem in problems
        if (seconds := reference_s(problem, kind)) > TOLD_S
    ]


def deadlines(problems: Sequence[Problem], kind: DeviceKind) -> Deadlines:
    """Those of steps on these problems: what is large takes long, and hangs no more for that."""
    more_s = SLOW * max(reference_s(problem, kind) for problem in problems)
    return Deadlines(**{name: each + more_s * (name != "build") for name, each in Deadlines()})


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
