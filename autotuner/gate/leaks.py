"""G3.leak: launches give back what they take of their process and their device.

Counted is what the process holds before and after many launches, and before and after one: the difference is what the
launches between them keep. Caches that fill and threads that start do so in the first round, which is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.gate.bench import DEVICE_BYTES
from autotuner.gate.check import Check, Failed
from autotuner.values import codes
from autotuner.values.verdict import Meaning, Verdict

if TYPE_CHECKING:
    from autotuner.gate.cases import Case
    from autotuner.gate.launching import Launching
    from autotuner.ops.tensors import Tensors

LAUNCHES = 48
"""Of a round that is counted."""
ROUNDS = 4
LEAST_BYTES = 128 << 10
"""A launch that keeps less is not seen. Tensors that Python frees late are less by far."""
LEAST_FILES = 0.5
ALIKE = 2.0
"""What is kept is about the same in every round, within this factor: another program's memory on a GPU is not."""


def _leak(launching: Launching) -> None:
    """Launches on one small input leave nothing behind, in each of several rounds."""
    case = launching.matrix.case(launching.op.cases.smoke)
    inputs = launching.inputs(case)
    right = launching.launch(case, inputs)
    _kept(launching, case, inputs, right, LAUNCHES)
    rounds = []
    for _ in range(ROUNDS):
        many = _kept(launching, case, inputs, right, LAUNCHES)
        one = _kept(launching, case, inputs, right, 1)
        rounds.append({what: (many[what] - one[what]) / (LAUNCHES - 1) for what in many})
        if not any(_is_much(what, kept) for what, kept in rounds[-1].items()):
            return
    for what in rounds[0]:
        kept = [each[what] for each in rounds]
        if all(_is_much(what, each) for each in kept) and max(kept) <= ALIKE * min(kept):
            code = codes.DEVICE_LEAK if what == DEVICE_BYTES else codes.LEAK
            raise Failed(f"each launch takes {min(kept):,.0f} {what} and never gives them back", case, code)


def _kept(launching: Launching, case: Case, inputs: Tensors, right: Tensors, count: int) -> dict[str, int]:
    """By how much what the process holds has grown after so many launches."""
    before = launching.bench.held()
    try:
        launching.repeat(case, inputs, right, count, 1)
    except Failed as failed:  # what launches do is another check's
        raise Failed(str(failed), case, codes.REPEAT, Verdict.NONDETERMINISTIC) from None
    return {what: now - before[what] for what, now in launching.bench.held().items()}


def _is_much(what: str, kept: float) -> bool:
    return kept >= (LEAST_FILES if what == "open files" else LEAST_BYTES)


LEAK = Check(
    codes.LEAK,
    "launches give back the memory and the files that they take",
    _leak,
    "an allocation at each call, of memory, files or threads, without its end",
    Verdict.OVER_LIMITS,
    faults={
        codes.DEVICE_LEAK: Meaning("launches give back the device's memory", "an allocation at each call, or others")
    },
)
