"""G4: streams and capture, on a device that has streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.gate.bench import StreamBench
from autotuner.gate.check import Check, Failed
from autotuner.gate.invariants import invariant_case, tuned_cases
from autotuner.values.verdict import Verdict

if TYPE_CHECKING:
    from autotuner.gate.cases import Case
    from autotuner.gate.launching import Launching

LATER = 1
"""The number of the secret seed from which the inputs of a replay are drawn."""


def _stream(launching: Launching) -> None:
    """Work goes to the caller's stream and to no other: inputs that arrive late on it are waited for."""
    bench, case = launching.bench, invariant_case(launching)
    assert isinstance(bench, StreamBench)
    inputs = launching.inputs(case)
    want = launching.launch(case, inputs)
    detail = "on a side stream whose inputs arrive late the output is another: the launch does not follow its stream"
    status, got = launching.in_time(case, lambda: bench.delayed(case.problem, inputs))
    launching.require_ok(status, case)
    launching.require_same(case, got, want, detail)


def _capture(launching: Launching) -> None:
    """A launch can be captured into a graph, and each replay computes anew from what the inputs hold then.

    The tuned problems are replayed too, where launches are quick: blocks with several pieces of work may draw them by a
    count, and one that a replay leaves behind is another replay's start.
    """
    for case in (invariant_case(launching), *tuned_cases(launching, "replayed")):
        _replays(launching, case)


def _replays(launching: Launching, case: Case) -> None:
    bench = launching.bench
    assert isinstance(bench, StreamBench)
    inputs, later = launching.inputs(case), launching.inputs(case, LATER)
    want = launching.launch(case, later)
    try:
        status, replays = launching.in_time(case, lambda: bench.replayed(case.problem, inputs, later))
    except ValueError as error:
        raise Failed(str(error), case, verdict=Verdict.LAUNCH_FAILED) from None
    launching.require_ok(status, case)
    for number, got in enumerate(replays, 1):
        detail = f"replay {number} of a captured launch, with new inputs, gives another output than a launch"
        launching.require_same(case, got, want, detail)


STREAM = Check(
    "G4.stream",
    "all work goes to the caller's stream: inputs that arrive late on it are waited for",
    _stream,
    "a launch on a stream of its own, or on the default stream",
    applies=lambda subject: subject.streams,
)
CAPTURE = Check(
    "G4.capture",
    "a launch can be captured into a graph, and each replay computes anew",
    _capture,
    "work that a graph cannot hold (an allocation, a wait), or an answer or a count kept from an earlier call",
    applies=lambda subject: subject.streams,
)
