"""Host time of a call: torch's attention, ops of torch.library that do nothing, and ours, in one run.

    python -m benchmarks.inference.host_time best.json --out docs/results/host_time.json

The problem is a small one of the export's table that a variant serves. On a GPU the host's time is that of a call that
does not wait; on the CPU the same call computes, so what is ours is also timed without its launch. Inside a compiled
graph a call is one of several in a row, so that what the graph itself takes counts little.
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
CHAIN = 16
"""Calls in a compiled graph."""
Call = Callable[..., Any]


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


def arms(ours: Loaded, dry: Loaded, problem: Problem) -> dict[str, Callable[[], object]]:
    """Of each arm a call. `dry`: the same export once more, which here launches nothing."""
    op = OPS[problem.op]
    assert op.call is not None
    function = op.call.torch
    assert function is not None
    inputs = tuple(each.to(ours.table.device) for each in op.tensors().inputs(problem, op.ordinary, 0))
    options = {name: value for name, value in function.options(problem).items() if value}
    given = function.called(inputs, options)
    torchs, (made, defined) = function.ours(), nothing()
    dry(**given)
    dry._plan(*function.arguments(**given)).launcher = lambda addresses, stream: 0
    return {
        "torch": lambda: torchs(**given),
        "custom_op that does nothing": lambda: made(*inputs[:3]),
        "defined op that does nothing": lambda: defined(*inputs[:3]),
        "ours": lambda: ours(**given),
        "ours without the launch": lambda: dry(**given),
        "ours as an op": lambda: ours.op(*inputs, **options),
        "torch in a compiled graph": chained(torchs, given),
        "ours in a compiled graph": chained(ours, given),
        "ours in a compiled graph without the launch": chained(dry, given),
    }


def nothing() -> tuple[Call, Call]:
    """Ops of torch.library that do nothing: as its decorator makes them, and by their parts."""

    @torch.library.custom_op("autotuner_benchmark::nothing", mutates_args=())
    def made(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.empty_like(q)

    LIBRARY.define("defined(Tensor q, Tensor k, Tensor v) -> Tensor")
    for key in ("CPU", "CUDA"):
        LIBRARY.impl("defined", lambda q, k, v: torch.empty_like(q), key)
    LIBRARY.impl("defined", torch.library.fallthrough_kernel, "Autograd")
    return made, torch.ops.autotuner_benchmark.defined.default


LIBRARY = torch.library.Library("autotuner_benchmark", "FRAGMENT")


def chained(call: Call, given: dict[str, Any]) -> Callable[[], object]:
    """CHAIN calls in a compiled graph, each on the result of the one before."""
    first, *_ = given

    def several(start: Tensor) -> Tensor:
        for _ in range(CHAIN):
            start = call(**{**given, first: start})
        return start

    graph = torch.compile(several, fullgraph=True)
    return lambda: graph(given[first])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("export", type=Path)
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    ours = autotuner.load(said.export, build=True, strict=True)
    dry = autotuner.load(said.export, build=True, strict=True, gradients="torch")
    problem = smallest(ours)
    wait = torch.cuda.synchronize if ours.table.device == "cuda" else lambda: None
    taken: dict[str, list[float]] = {}
    with torch.no_grad():
        timed = arms(ours, dry, problem)
        for call in timed.values():
            host_us(call, wait)
        for _ in range(ROUNDS):
            for name in random.sample(list(timed), len(timed)):
                taken.setdefault(name, []).append(host_us(timed[name], wait))
    calls = {name: CHAIN if "graph" in name else 1 for name in taken}
    us = {name: statistics.median(each) / calls[name] for name, each in taken.items()}
    document = {
        **provenance([said.export]),
        "torch": torch.__version__,
        "problem": str(problem),
        "device": ours.table.device,
        "host_us": us,
        "over_torch": {name: each / us["torch"] for name, each in us.items()},
        "over_custom_op": {name: each / us["custom_op that does nothing"] for name, each in us.items()},
        "over_torch_in_a_graph": {name: each / us["torch in a compiled graph"] for name, each in us.items()},
    }
    text = json.dumps(document, indent=1) + "\n"
    if said.out is not None:
        said.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
