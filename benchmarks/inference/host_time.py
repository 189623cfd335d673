"""Host time of a call: torch's attention, ops of torch.library that do nothing, and ours, in one run.

    python -m benchmarks.inference.host_time best.json --out docs/results/host_time.json

The problem is a small one of the export's table that a variant serves. On a GPU the host's time is that of a call that
does not wait; on the CPU the same call computes. What is ours is also timed without torch's function where torch serves
the call. Inside a compiled graph a call is one of several in a row, so that what the graph itself takes counts little.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import autotuner
from autotuner.devices import DEVICES, Wishes
from autotuner.ops import OPS
from autotuner.serve.runtime.stated import Stated
from autotuner.values.errors import InputError
from autotuner.values.problem import Problem
from benchmarks.provenance import ROOT, provenance

CALLS, ROUNDS = 200, 31
"""Calls of a sample, those in graphs counted, and samples of each arm; arms take turns in random order."""
CHAIN = 16
"""Calls in a compiled graph."""
GIVEN = 3
"""Tensors that a call is given without their names, as models do."""
Call = Callable[..., Any]


def host_us(call: Callable[[], object], wait: Callable[[], object], calls: int) -> tuple[float, float]:
    """Microseconds of one call of a sample, without the wait for what it launched: on the clock, and of this thread's
    CPU time, which others who use the machine hardly change."""
    wait()
    used, started = time.thread_time(), time.perf_counter()
    for _ in range(calls):
        call()
    taken, used = time.perf_counter() - started, time.thread_time() - used
    wait()
    return 1e6 * taken / calls, 1e6 * used / calls


def smallest(ours: Any) -> Problem:
    """The problem with the least work that a variant serves."""
    found = [entry.problem for entry in ours.table.entries if entry.use is not None]
    if not found:
        raise InputError("the table serves no problem with a variant; tune one that is faster than the baseline")
    least: Problem = min(found, key=lambda problem: problem.flops)
    return least


def arms(ours: Any, problem: Problem) -> dict[str, Callable[[], object]]:
    """Of each arm a call."""
    op = OPS[problem.op]
    signature = op.signature
    inputs = tuple(each.to(ours.table.device) for each in op.tensors().inputs(problem, op.ordinary, 0))
    options = op.torch.options(problem)
    given, named = signature.called(inputs, options)
    through, (made, defined) = autotuner.function(op.name), nothing()
    torchs = signature.FUNCTION if Stated(signature).added.isdisjoint(named) else through
    return {
        "torch": lambda: torchs(*given, **named),
        "torch by the recorded function": lambda: through(*given, **named),
        "custom_op that does nothing": lambda: made(*given),
        "defined op that does nothing": lambda: defined(*given),
        "ours": lambda: ours(*given, **named),
        **served_by_nobody(ours, given, named),
        "ours as an op": lambda: ours.op(*inputs, **options),
        "torch in a compiled graph": chained(torchs, given, named),
        "ours in a compiled graph": chained(ours, given, named),
    }


def served_by_nobody(ours: Any, given: Sequence[Any], named: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Ours where it launches nothing, and where it knows that torch serves the call, by a function that does
    nothing."""
    dry, once_more = copied(ours), copied(ours)
    for each in (dry, once_more):
        each(*given, **named)
        each(*given, **named)
        each(*given, **named)
    if dry._latest is None or dry._latest.forward is None:
        return {}  # torch has no guards, or the library has to be asked each time
    known = once_more._latest
    dry._latest.forward = without_its_launch(dry._latest.forward)
    known.forward, known.named = None, {}
    once_more._function = lambda *args, **kwargs: args
    return {
        "ours without the launch": lambda: dry(*given, **named),
        "ours, served by torch, without torch's function": lambda: once_more(*given, **named),
    }


def without_its_launch(forward: Any) -> Any:
    """A function of forward.py with a launch that does nothing in its place."""
    cells = dict(zip(forward.__code__.co_freevars, forward.__closure__, strict=True))
    names = ("empty", "tally", "index")
    said = {name: cells[name].cell_contents for name in names}
    made: Any = sys.modules[forward.__module__].forward
    return made(lambda addresses, stream: True, *(said[name] for name in names))


def copied(ours: Any) -> Any:
    """The function once more, with a memory of its own."""
    build, made_from = ours.made_by
    return build(*made_from)


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


def chained(call: Call, given: Sequence[Tensor], named: dict[str, Any]) -> Callable[[], object]:
    """CHAIN calls in a compiled graph, each on the result of the one before."""
    first, *others = given

    def several(start: Tensor) -> Tensor:
        for _ in range(CHAIN):
            start = call(start, *others, **named)
        return start

    graph = torch.compile(several, fullgraph=True)
    return lambda: graph(first)


def measured(export: Path) -> dict[str, Any]:
    """Medians over the samples of this process, of each arm."""
    ours = autotuner.load(export, strict=True)
    problem = smallest(ours)
    wait = torch.cuda.synchronize if ours.table.device == "cuda" else lambda: None
    taken: dict[str, list[tuple[float, float]]] = {}
    with torch.no_grad():
        timed = arms(ours, problem)
        calls = {name: CHAIN if "graph" in name else 1 for name in timed}
        for call in timed.values():
            host_us(call, wait, CHAIN)
        for _ in range(ROUNDS):
            for name in random.sample(list(timed), len(timed)):
                taken.setdefault(name, []).append(host_us(timed[name], wait, CALLS // calls[name]))
    clock, thread = (
        {name: statistics.median(each[place] for each in taken[name]) / calls[name] for name in timed}
        for place in range(2)
    )
    device = DEVICES[ours.table.device].choose(Wishes()).device.name
    return {"problem": str(problem), "device": device, "host_us": clock, "thread_us": thread}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("export", type=Path)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.here:
        print(json.dumps(measured(said.export)))
        return
    command = [sys.executable, "-m", __spec__.name, str(said.export.absolute()), "--here"]
    found = []
    for _ in range(said.processes):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    document = {
        **provenance([said.export]),
        "torch": torch.__version__,
        "processes": said.processes,
        "load": os.getloadavg()[0],
        **{name: found[0][name] for name in ("problem", "device")},
        **{name: spreads([each[name] for each in found]) for name in ("host_us", "thread_us")},
    }
    text = json.dumps(document, indent=1) + "\n"
    if said.out is not None:
        said.out.write_text(text)
    print(text, end="")


def spreads(found: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Of each arm the least, the median and the largest of some processes."""
    return {
        name: {"least": min(us), "median": statistics.median(us), "most": max(us)}
        for name in found[0]
        for us in [[round(each[name], 2) for each in found]]
    }


if __name__ == "__main__":
    main()
