"""G7: after timing, on the very buffers that were timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from autotuner.gate.tolerance import Truth, judge
from autotuner.values.gate_policy import Tolerance
from autotuner.values.verdict import Fault, Verdict


class Timed(NamedTuple):
    """What a race left behind."""

    inputs: Sequence[Tensor]
    """Q, K and V of the last timed forward."""
    output: Tensor
    """O of the last timed forward."""
    damage: str | None
    """Which guard band around the timed buffers was written, in words."""
    strays: str | None
    """Which other timed buffer is not what it must be, in words: an input that changed, an output unlike the last."""
    again: Callable[[], None]
    """Runs the timed forward once more, untimed, on the same buffers."""


def recheck(timed: Timed, expected: Truth, fresh: Truth, tolerance: Tolerance) -> Fault | None:
    """Guards and inputs are what they were, the last output is right, and new inputs in place, with the output
    poisoned, give the new right output when the timed forward runs once more. The inputs are restored."""
    if timed.damage is not None:
        return Fault(verdict=Verdict.CORRUPTING, code="G7.guard", detail=timed.damage)
    for name, before, after in zip("QKV", expected[:3], timed.inputs, strict=True):
        if not torch.equal(before.view(torch.uint8), after.view(torch.uint8)):
            return Fault(verdict=Verdict.CORRUPTING, code="G7.inputs", detail=f"{name} changed while it was timed")
    fault = _output_fault(timed.output, expected, tolerance, "an output of the timed run")
    if fault is not None:
        return fault
    if timed.strays is not None:
        return Fault(verdict=Verdict.NONDETERMINISTIC, code="G7.strays", detail=timed.strays)
    _overwrite(timed.inputs, fresh)
    timed.output.fill_(float("nan"))
    timed.again()
    fault = _output_fault(timed.output, fresh, tolerance, "with new inputs in the timed buffers, the output")
    _overwrite(timed.inputs, expected)
    return fault


def _overwrite(inputs: Sequence[Tensor], values: Truth) -> None:
    for tensor, new in zip(inputs, values[:3], strict=True):
        tensor.copy_(new)


def _output_fault(output: Tensor, expected: Truth, tolerance: Tolerance, what: str) -> Fault | None:
    errors = judge(output, expected, tolerance)
    if errors.failed_rule is None:
        return None
    detail = f"{what} breaks {errors.failed_rule}: {errors.worst_ratio:.3g} times the tolerance"
    return Fault(verdict=Verdict.INCORRECT, code="G7.output", detail=detail)
