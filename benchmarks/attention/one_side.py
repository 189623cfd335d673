"""A checkout's side of old_and_new, whose process runs this source there: it builds points and times graphs of them.

A line of JSON with the points comes first, and their program hashes, or reasons, go back. Then come lines: `warm N` or
`cold N` captures graphs of point N and answers with a sum of its output, or a reason; `time G` answers with the
microseconds of a forward of graph G.
"""

import argparse
import gc
import json
import os
import sys
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.toolchain import Toolchain
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import moved
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from benchmarks.attention.interleaved import input_sets, timer, variant_forward

GRAPHS = 2


def built(toolchain: Toolchain, point: dict[str, Any]) -> Artifact | str:
    """A build of a point: parameters of another version are left out, what it lacks is as it is by default."""
    family = Family.load(config.kernels_dir() / "sdpa")
    table = tomllib.loads((config.kernels_dir() / "sdpa" / "kernel.toml").read_text())["cuda"][point["impl"]]
    given = point["parameters"]
    known = table["parameters"]  # an earlier version has names alone
    others = {name: values[0] for name, values in known.items()} | table["default"] if isinstance(known, dict) else {}
    if lacking := [name for name in known if name not in given | others]:
        return f"no value of {', '.join(lacking)} is known"
    parameters = {name: given.get(name, others.get(name)) for name in known}
    variant = Variant(family="sdpa", backend="cuda", impl=point["impl"], parameters=parameters)
    try:
        found = build(family, variant, SdpaProblem.parse(point["problem"]), toolchain)
    except Exception as error:  # no header of cuBLAS, say: the other points do without
        return str(error)
    return found if isinstance(found, Artifact) else str(found)


def captured(artifact: Artifact, text: str, cold: bool) -> tuple[float, list[Callable[[], float]]]:
    """A sum of the output, and timers of graphs, each with memory of its own."""
    problem = SdpaProblem.parse(text)
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    sets = input_sets(problem, inputs, cold)
    sides = [variant_forward(artifact, problem, sets) for _ in range(GRAPHS)]
    timers = [timer(forward, len(sets)) for forward, _ in sides]
    return float(sides[0][1][0].double().abs().sum()), timers


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0]).parse_args()
    told, sys.stdout = sys.stdout, sys.stderr

    def say(what: Any) -> None:
        print(json.dumps(what), file=told, flush=True)

    points = json.loads(sys.stdin.readline())
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2)) as pool:
        builds = list(pool.map(partial(built, Workbench(load_space("sdpa_cuda")).toolchain), points))
    say([[each.program_hash] if isinstance(each, Artifact) else each for each in builds])
    timers: list[Callable[[], float]] = []
    for line in sys.stdin:
        command, number = line.split()
        if command == "time":
            say(timers[int(number)]())
            continue
        timers = []
        gc.collect()
        torch.cuda.empty_cache()
        artifact = builds[int(number)]
        assert isinstance(artifact, Artifact)
        try:
            total, timers = captured(artifact, points[int(number)]["problem"], command == "cold")
            say(total)
        except (RuntimeError, ValueError) as error:
            say(str(error).splitlines()[0])


if __name__ == "__main__":
    main()
