"""Times IMPL = decode at few queries against torch's backends on this GPU, and writes what it found.

    python -m benchmarks.attention.decode [--json docs/results/decode_attention.json] [--shapes 1,7,8] [--rounds 21]
        [--points 40]

Of each shape it tries points of `decode` in search_spaces/sdpa_cuda.toml, keeps those that are right and fastest, and
times them again beside every backend: graphs of forwards, replayed in random order, warm and cold. Needs a GPU that
nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import torch

from autotuner.gate.cases import Case
from autotuner.gate.tolerance import Truth, compute_truth, judge
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from benchmarks.attention.interleaved import (
    Figures,
    Forward,
    baseline_forward,
    input_sets,
    race,
    ratios,
    spread,
    timer,
    variant_forward,
)
from benchmarks.provenance import command_line

SHAPES = (
    "(1,32:8,1x4096,128) float16",
    "(1,32:8,1x32768,128) float16",
    "(8,32:8,1x4096,128) float16",
    "(32,32:8,1x2048,128) float16",
    "(1,32,1x4096,128) float16",
    "(8,32,1x4096,128) float16",
    "(1,8,1x4096,64) float16",
    "(4,32:8,16x4096,128) float16",
)
KEPT = 3
"""Points of a shape that are timed beside the backends."""
SEARCH_ROUNDS = 5
AT_ONCE = (1, 2, 4)
"""Blocks of a grid for each multiprocessor that points aim at."""


def common(problem: SdpaProblem) -> dict[str, int | str]:
    """What all points that are tried have alike, which their labels leave out: all rows of a group in as few blocks as
    there can be."""
    row_warps = min(4, math.ceil(problem.seq_q * problem.group / 16))
    packed = int(problem.grouped)
    return {"WARPS_M": row_warps, "ROW_TILES": 1, "PACK_GQA": packed, "Q_FROM": "registers", "LOAD": "tma"}


def points_of(workbench: Workbench, multiprocessors: int, most: int) -> list[int]:
    """Points of the space that fill the device, `most` of them, drawn, with splits so that there are AT_ONCE blocks a
    multiprocessor, about."""
    problem = workbench.conditions.problems[0]
    assert isinstance(problem, SdpaProblem)
    alike = common(problem)
    groups = problem.batch * problem.heads_kv * math.ceil(problem.seq_q * problem.group / (16 * int(alike["WARPS_M"])))
    wanted = {max(1, round(multiprocessors * each / groups)) for each in AT_ONCE}
    known = [int(value) for value in workbench.space.file.parameters["SPLIT"]]
    splits = {min(known, key=lambda value: abs(value - each)) for each in wanted}
    found = []
    for index in range(len(workbench.space)):
        point = workbench.space.point(index)
        fits = all(point.get(name, value) == value for name, value in alike.items())
        fits = fits and point.get("L2_FETCH", 1) in (256, 1)
        if fits and point["SPLIT"] in splits and point["BLOCK_N"] in (32, 64):
            found.append(index)
    return random.Random(1).sample(found, min(most, len(found)))


def label_of(point: dict[str, int | str]) -> str:
    """What sets the points that are tried apart."""
    names = ("TILE_ROWS", "WARPS_N", "BLOCK_N", "STAGES", "SPLIT", "MERGE", "L2_FETCH")
    return " ".join(f"{name}={point[name]}" for name in names if name in point)


def right(outputs: tuple[torch.Tensor, ...], truth: Truth) -> bool:
    """Whether all outputs are within the gate's tolerances."""
    return all(judge(*pair).failed_rule is None for pair in zip(outputs, truth.outputs, strict=True))


def timed_at(text: str, rounds: int, most: int) -> Figures:
    """The figures of one shape."""
    problem = SdpaProblem.parse(text)
    workbench = Workbench(load_space("sdpa_cuda", problems=[text]).only("decode"))
    chosen = points_of(workbench, int(workbench.device.facts["MULTIPROCESSORS"]), most)
    built = dict(zip(chosen, workbench.build_all(chosen), strict=True))
    truth = compute_truth(Case(name=text, problem=problem, distribution="randn"), 1, "cuda")
    forwards: dict[bool, dict[str, Forward]] = {False: {}, True: {}}
    sets = {cold: input_sets(problem, truth.inputs, cold) for cold in (False, True)}
    wrong: list[str] = []
    for index, artifact in built.items():
        label = label_of(workbench.space.point(index))
        if not isinstance(artifact, Artifact):
            continue
        for cold in (False, True):
            forward, outputs = variant_forward(artifact, problem, sets[cold])
            forward(0)
            forward(0)
            torch.cuda.synchronize()
            if not right(outputs, truth):
                wrong.append(label)
                print("WRONG", label, flush=True)
                break
            forwards[cold][label] = forward
    searched = {cold: medians(forwards[cold], len(sets[cold]), SEARCH_ROUNDS) for cold in (False, True)}
    both = [label for label in searched[False] if label in searched[True]]
    best = sorted(both, key=lambda label: searched[False][label] * searched[True][label])[:KEPT]
    found: Figures = {"problem": str(problem), "tried": len(both), "wrong": wrong}
    for cold in (False, True):
        sides = {label: forwards[cold][label] for label in best}
        sides |= {name: baseline_forward(name, problem, sets[cold]) for name in ("cudnn", "flash", "efficient")}
        taken = race(timers(sides, len(sets[cold])), rounds)
        backends = [name for name in ("cudnn", "flash", "efficient") if name in taken]
        baseline = min(backends, key=lambda name: spread(taken[name])["median"])
        found["cold" if cold else "warm"] = {
            "us": {name: spread(us) for name, us in taken.items()},
            "baseline": baseline,
            "speedup": {label: ratios(taken[baseline], taken[label]) for label in best if label in taken},
        }
    return found


def timers(forwards: dict[str, Forward], sets: int) -> dict[str, Callable[[], float]]:
    """A timer of each forward that can be captured; a backend that does not take the problem is left out."""
    found = {}
    for name, forward in forwards.items():
        try:
            found[name] = timer(forward, sets)
        except RuntimeError as error:
            print(name, "left out:", str(error).splitlines()[0], flush=True)
    return found


def medians(forwards: dict[str, Forward], sets: int, rounds: int) -> dict[str, float]:
    return {name: spread(us)["median"] for name, us in race(timers(forwards, sets), rounds).items()}


def main() -> int:
    """Prints a line a shape and writes the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.decode", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shapes", default=",".join(str(i + 1) for i in range(len(SHAPES))))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--points", type=int, default=40)
    given = parser.parse_args()
    rows: list[Figures] = []
    for number in map(int, given.shapes.split(",")):
        rows.append(timed_at(SHAPES[number - 1], given.rounds, given.points))
        for state in ("warm", "cold"):
            row = rows[-1][state]
            best = {name: round(us["median"], 2) for name, us in row["us"].items()}
            gained = {name: round(each["median"], 3) for name, each in row["speedup"].items()}
            print(rows[-1]["problem"], state, best, gained, flush=True)
        if given.json is not None:
            where = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
            given.json.write_text(json.dumps({"command": command_line(), **where, "shapes": rows}, indent=1) + "\n")
    for state in ("warm", "cold"):
        speedups = [max(each["median"] for each in row[state]["speedup"].values()) for row in rows]
        print(state, "geometric mean", round(math.exp(sum(map(math.log, speedups)) / len(speedups)), 3))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
