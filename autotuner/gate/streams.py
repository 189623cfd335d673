"""G4: streams and capture, on a device that has streams."""

from __future__ import annotations

import torch

from autotuner.gate.bench import StreamBench
from autotuner.gate.invariants import invariant_case
from autotuner.gate.launching import Failed, Launching
from autotuner.values.verdict import Verdict


def stream(launching: Launching) -> None:
    """Work goes to the caller's stream and to no other: inputs that arrive late on it are waited for."""
    bench, case = launching.bench, invariant_case(launching)
    assert isinstance(bench, StreamBench)
    tensors = launching.tensors(case)
    want = launching.launch(case, tensors)
    detail = "on a side stream whose inputs arrive late the output is another: the launch does not follow its stream"
    status, got = launching.in_time(case, lambda: bench.delayed(case.problem, tensors))
    launching.require_ok(status, case)
    launching.require_equal("G4.stream", case, got, want, detail)


def capture(launching: Launching) -> None:
    """A launch can be captured into a graph, and a replay computes anew from what the inputs hold then."""
    bench, case = launching.bench, invariant_case(launching)
    assert isinstance(bench, StreamBench)
    tensors = launching.tensors(case)
    q, k, v = tensors
    later = (torch.flip(q, (2,)), -k, torch.flip(v, (3,)))
    want = launching.launch(case, later)
    try:
        status, got = launching.in_time(case, lambda: bench.replayed(case.problem, tensors, later))
    except ValueError as error:
        raise Failed(Verdict.LAUNCH_FAILED, "G4.capture", str(error), case) from None
    launching.require_ok(status, case)
    detail = "the replay of a captured launch with new inputs gives another output than a launch"
    launching.require_equal("G4.capture", case, got, want, detail)
