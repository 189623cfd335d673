"""What no variant can do: be faster than the device, or faster by its clock than by the host's."""

from autotuner.race.arms import VariantArm
from autotuner.values.outcome import Ceilings
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Verdict

MARGIN = 1.25
"""Ceilings are measured under the clocks that long work leaves; a short burst can run at a higher one."""

APART = 0.05
APART_S = 10e-6
CLOCKS_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
"""So long forwards run when two clocks are compared: what a busy host adds once is less and less of it, what a variant
hides stays the same share."""


def floor_us(problem: Problem, ceilings: Ceilings, cold: bool) -> float:
    """Microseconds under which the problem cannot be computed: its operations, and when cold its bytes, at the ceiling.

    The roofline model (Williams, Waterman and Patterson, CACM 52, 2009), with MARGIN on both roofs.
    """
    by_flops = problem.flops / (ceilings.flops * problem.TIMES_AS_FAST)
    by_bytes = problem.bytes / ceilings.bytes if cold else 0.0
    return 1e6 * max(by_flops, by_bytes) / MARGIN


def moves_bytes(problem: Problem, ceilings: Ceilings) -> bool:
    """Whether moving the problem's bytes takes longer than its operations: then it matters what the caches hold."""
    return problem.bytes / ceilings.bytes > problem.flops / ceilings.flops


def too_fast(problem: Problem, us: float, ceilings: Ceilings | None, cold: bool) -> Fault | None:
    """A fault when the latency is below the floor."""
    if ceilings is None:
        return None
    least = floor_us(problem, ceilings, cold)
    if us >= least:
        return None
    detail = f"{us:.3g} us for {problem}, but this device needs {least:.3g} us at least: the work was not done"
    return Fault(verdict=Verdict.IMPOSSIBLE, code="measure.floor", detail=detail)


def clocks_disagree(arm: VariantArm) -> Fault | None:
    """A fault when forwards take longer by the host's clock than by the device's: work hid from the device's.

    The host may be held up by something else, so it has some tries, each longer than the one before.
    """
    for seconds in CLOCKS_S:
        found = arm.clocks(seconds)
        if found is None or abs(found.host - found.device) <= max(APART * found.device, APART_S):
            return None
    assert found is not None
    host, device = 1e3 * found.host, 1e3 * found.device
    detail = f"{host:.1f} ms by the host's clock, {device:.1f} ms by the one of the samples"
    return Fault(verdict=Verdict.IMPOSSIBLE, code="measure.clocks", detail=detail)
