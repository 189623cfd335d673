"""Forwards side by side on this GPU: graphs of them, replayed in random order, warm and cold."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import Any

import torch

from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, distinct, empty_like
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem

Forward = Callable[[int], object]
"""Launches a forward on the input set of that number, on the current stream."""

GRAPH_S = 0.001
"""A replay is at least this long, in seconds."""
COLD_BYTES = 310 << 20
"""Bytes of the input sets that are used in turn where each is to be cold: five times an H200's second-level cache."""
MOST_CALLS = 64
"""Forwards of a graph, at most, where they are warm."""


def input_sets(problem: Problem, inputs: Tensors, cold: bool) -> list[Tensors]:
    """Copies of the inputs, laid out as they are: one, or so many that each has left the cache when its turn comes."""
    count = math.ceil(COLD_BYTES / problem.bytes) + 1 if cold else 1
    sets = [inputs]
    while len(sets) < count:
        copies = tuple(empty_like(tensor) for tensor in inputs)
        for copy, tensor in zip(copies, inputs, strict=True):
            distinct(copy).copy_(distinct(tensor))
        sets.append(copies)
    return sets


def variant_forward(
    built: Artifact, problem: Problem, sets: Sequence[Tensors], given: Tensors | None = None
) -> tuple[Forward, Tensors]:
    """Forwards of a built variant, and the outputs of the first set: those given, which all sets then write, or
    new ones, a set each. Raises RuntimeError where one is refused."""
    variant, new = LoadedVariant(built), op_of(problem).tensors().outputs
    outputs = [given or new(problem, inputs) for inputs in sets]
    wanted = variant.workspace_bytes(problem)
    workspace = torch.full((wanted // 4 + 64,), 0x7FFF7FFF, dtype=torch.int32, device=sets[0][0].device)
    address = -(-workspace.data_ptr() // 64) * 64
    calls = [
        variant.prepared(problem, inputs, written, address, wanted)
        for inputs, written in zip(sets, outputs, strict=True)
    ]

    def forward(number: int) -> object:
        status = calls[number](torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"status {status}")
        return workspace, outputs  # which live as long as the forward

    return forward, outputs[0]


def baseline_forward(name: str, problem: Problem, sets: Sequence[Tensors]) -> Forward:
    """Forwards of one of the op's baselines, whose results lie apart, a set each. All sets hold the same numbers."""
    baseline = op_of(problem).tensors().BASELINES[name]
    pinned, beside = baseline.forward(problem), baseline.beside(problem, sets[0])
    results: dict[int, object] = {}

    def forward(number: int) -> object:
        results.pop(number, None)
        results[number] = pinned(*sets[number], *beside)
        return results[number]

    return forward


def timer(forward: Forward, sets: int) -> Callable[[], float]:
    """A timer of a graph of forwards: microseconds of one. Raises RuntimeError where it cannot be captured."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            forward(0)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        forward(0)
        last.record()
        stream.synchronize()
        calls = min(MOST_CALLS, max(2, math.ceil(1e3 * GRAPH_S / max(1e-3, first.elapsed_time(last)))))
        calls = math.ceil(calls / sets) * sets
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in range(calls):
                forward(call % sets)

    def timed(_kept: Forward = forward) -> float:  # a graph has addresses, and no hold on what lies there
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        return float(1000 * first.elapsed_time(last) / calls)

    return timed


def race(timers: Mapping[str, Callable[[], float]], rounds: int, seed: int = 7) -> dict[str, list[float]]:
    """Microseconds of each in every round; in each round all of them, in random order."""
    draw = random.Random(seed)
    taken: dict[str, list[float]] = {name: [] for name in timers}
    for timed in timers.values():
        timed()
    for _ in range(rounds):
        for name in draw.sample(list(timers), len(timers)):
            taken[name].append(timers[name]())
    return taken


def spread(numbers: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, _, high = quantiles(numbers, n=4) if len(numbers) > 1 else (numbers[0],) * 3
    return {"low": low, "median": median(numbers), "high": high}


def ratios(over: Sequence[float], under: Sequence[float]) -> dict[str, float]:
    """Of two sides of a race, round by round."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


Figures = dict[str, Any]
