"""Host time of a call: torch's attention, an op of torch.library that does nothing, and ours, in one run.

    python -m benchmarks.inference.host_time best.json --out docs/results/host_time.json

The problem is a small one of the export's table that a variant serves. On a GPU the host's time is that of a call that
does not wait; on the CPU the same call computes, so what is ours is also timed without its launch.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import autotuner
from autotuner.inference.load import Loaded
from autotuner.ops import OPS
from autotuner.values.errors import InputError
from autotuner.values.problem import Problem
from benchmarks.provenance import provenance

CALLS, ROUNDS = 200, 31
"""Calls of a sample, and samples of each arm; arms take turns in random order."""


def host_us(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """Microseconds of one call of a sample, without the wait for what it launched."""
    wait()
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    taken = time.perf_counter() - started
    wait()
    return 1e6 * taken / CALLS


def smallest(ours: Loaded) -> Problem:
    """The problem with the least work that a variant serves."""
    found = [entry.problem for entry in ours.table.entries if entry.use is not None]
    if not found:
        raise InputError("the table serves no problem with a variant; tune one that is faster than the baseline")
    return min(found, key=lambda problem: problem.flops)


def arms(ours: Loaded, problem: Problem) -> dict[str, Callable[[], object]]:
    op = OPS[problem.op]
    assert op.call is not None
    function = op.call.torch
    assert function is not None
    inputs = tuple(each.to(ours.table.device) for each in op.tensors().inputs(problem, op.ordinary, 0))
    options = {name: value for name, value in function.options(problem).items() if value}
    torchs, compiled = function.function(), torch.compile(lambda *tensors: ours(*tensors, **options), backend="eager")

    @torch.library.custom_op("autotuner_benchmark::nothing", mutates_args=())
    def nothing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.empty_like(q)

    launched = ours._launch
    plan_only: Any = lambda plan, tensors, given, said: function.empty(*given, **said)  # noqa: E731

    def without_launch() -> None:
        ours._launch = plan_only  # type: ignore[method-assign]
        try:
            ours(*inputs, **options)
        finally:
            ours._launch = launched  # type: ignore[method-assign]

    return {
        "torch": lambda: torchs(*inputs, **options),
        "custom_op that does nothing": lambda: nothing(*inputs),
        "ours": lambda: ours(*inputs, **options),
        "ours without the launch": without_launch,
        "ours compiled": lambda: compiled(*inputs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("export", type=Path)
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    ours = autotuner.load(said.export, build=True, strict=True)
    problem = smallest(ours)
    wait = torch.cuda.synchronize if ours.table.device == "cuda" else lambda: None
    taken: dict[str, list[float]] = {}
    with torch.no_grad():
        timed = arms(ours, problem)
        for call in timed.values():
            host_us(call, wait)
        for _ in range(ROUNDS):
            for name in random.sample(list(timed), len(timed)):
                taken.setdefault(name, []).append(host_us(timed[name], wait))
    us = {name: statistics.median(each) for name, each in taken.items()}
    ratios = {name: each / us["torch"] for name, each in us.items()}
    document = {
        **provenance([said.export]),
        "torch": torch.__version__,
        "problem": str(problem),
        "device": ours.table.device,
        "host_us": us,
        "over_torch": ratios,
    }
    text = json.dumps(document, indent=1) + "\n"
    if said.out is not None:
        said.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
