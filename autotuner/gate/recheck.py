"""G7: after timing, on the very buffers that were timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autotuner.gate.tolerance import Truth, judge
from autotuner.outcome import Fault, Verdict


def recheck(
    inputs: Sequence[Tensor], output: Tensor, expected: Truth, fresh: Truth, again: Callable[[], None]
) -> Fault | None:
    """The last output is right, the inputs are what they were, and new inputs in place, with the output poisoned, give
    the new right output when `again` runs the timed forward once more. The inputs are restored."""
    for before, after in zip(expected[:3], inputs, strict=True):
        if not torch.equal(before.view(torch.uint8), after.view(torch.uint8)):
            detail = "inputs changed while they were timed"
            return Fault(verdict=Verdict.CORRUPTING, code="G7.inputs", detail=detail)
    fault = _output_fault(output, expected, "an output of the timed run")
    if fault is not None:
        return fault
    _overwrite(inputs, fresh)
    output.fill_(float("nan"))
    again()
    fault = _output_fault(output, fresh, "with new inputs in the timed buffers, the output")
    _overwrite(inputs, expected)
    return fault


def _overwrite(inputs: Sequence[Tensor], values: Truth) -> None:
    for tensor, new in zip(inputs, values[:3], strict=True):
        tensor.copy_(new)


def _output_fault(output: Tensor, expected: Truth, what: str) -> Fault | None:
    errors = judge(output, expected)
    if errors.failed_rule is None:
        return None
    detail = f"{what} breaks {errors.failed_rule}: {errors.worst_ratio:.3g} times the tolerance"
    return Fault(verdict=Verdict.INCORRECT, code="G7.output", detail=detail)
