"""Times attention in windows, with capped scores, sinks and biases on this GPU beside torch's compiled flex_attention,
its SDPA with a mask and, for capped scores, FlashAttention 3, and writes what it found.

    python -m benchmarks.attention.windows [--json docs/results/windows_attention.json] [--shapes 1,2] [--rounds 21]
        [--points 12]

Of each shape it tries points of one implementation in search_spaces/sdpa_cuda.toml, keeps those that are right and
fastest, and times them again beside the others: graphs of forwards, replayed in random order, warm. Needs a GPU that
nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from autotuner.gate.cases import Matrix
from autotuner.gate.tolerance import compute_truth
from autotuner.ops import op_of
from autotuner.ops.sdpa.flex import module
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, moved
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Value
from benchmarks.attention.decode import medians, right, timers
from benchmarks.attention.interleaved import (
    Figures,
    Forward,
    baseline_forward,
    race,
    ratios,
    spread,
    variant_forward,
)
from benchmarks.attention.peers import fa3
from benchmarks.provenance import command_line

SHAPES = (
    ("wgmma", "(1,32:8,8192,128) bfloat16 causal window=1024"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 causal window=1024"),
    ("wgmma", "(1,16,4096,64) bfloat16 full window=256"),
    ("wgmma", "(1,32:8,16384,128) bfloat16 causal window=4096"),
    ("wgmma", "(8,16,1024,64) float16 full window=64"),
    ("wgmma", "(1,64:8,4096,64) bfloat16 causal window=128"),
    ("mma", "(2,16:8,2048,256) bfloat16 causal window=512"),
    ("decode", "(8,32:8,1x8192,128) bfloat16 causal window=1024 bottom_right"),
    ("wgmma", "(1,32:8,8192,128) bfloat16 causal softcap=50"),
    ("wgmma", "(1,32:8,8192,128) bfloat16 causal bias=alibi"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 causal bias=alibi"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 full bias=full"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 full bias=heads"),
    ("wgmma", "(1,64:8,4096,64) bfloat16 causal window=128 sinks"),
)
"""The first two and those of caps and biases are of the goal; the others were chosen before anything was tuned for
them."""
WANTED: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "wgmma": {
        "CONSUMERS": (2, 3),
        "BLOCK_N": (64, 96, 128, 160, 176),
        "OVERLAP": (1,),
        "Q_FROM": ("shared",),
        "BLOCKS_SM": (1,),
    },
    "mma": {"WARPS_M": (4, 8), "WARPS_N": (1,), "BLOCK_N": (32, 64), "FIXED": (0,), "SPLIT": (1,), "MULTICAST": (1,)},
    "decode": {"WARPS_M": (1,), "WARPS_N": (2, 4), "BLOCK_N": (32, 64), "ROW_TILES": (1,), "PACK_GQA": (1,)},
}
"""Values of each implementation among which points are drawn."""
KEPT, SEARCH_ROUNDS = 2, 5


def drawn(workbench: Workbench, impl: str, most: int) -> list[int]:
    """Points of the space with the wanted values."""
    space, wanted = workbench.space, WANTED[impl]
    points: Sequence[int] = range(len(space))
    if len(points) > 40000:
        points = random.Random(1).sample(points, 40000)
    found = [index for index in points if all(space.point(index).get(name) in each for name, each in wanted.items())]
    return random.Random(2).sample(found, min(most, len(found)))


def flex_forward(problem: SdpaProblem, inputs: Tensors) -> Forward:
    """flex_attention as torch's compiler makes it, with its mask of blocks, which is made once."""
    compiled: Any = torch.compile(module(problem, "cuda"), dynamic=False)
    for _ in range(3):
        compiled(*inputs)
    kept: list[Any] = []

    def forward(_: int) -> object:
        kept[:] = [compiled(*inputs)]
        return kept

    return forward


def timed_at(impl: str, text: str, rounds: int, most: int) -> Figures:
    """The figures of one shape."""
    problem = SdpaProblem.parse(text)
    workbench = Workbench(load_space("sdpa_cuda", problems=[text]).only(impl))
    chosen = drawn(workbench, impl, most)
    built = dict(zip(chosen, workbench.build_all(chosen), strict=True))
    op = op_of(problem)
    case = Matrix(problem).case(op.cases.tuned(problem))
    truth = compute_truth(case, 1, "cuda")
    inputs = moved(op.tensors().inputs(problem, "randn", 1), "cuda")
    forwards: dict[str, Forward] = {}
    wrong: list[str] = []
    for index, artifact in built.items():
        label = " ".join(f"{name}={value}" for name, value in workbench.space.point(index).items() if name != "IMPL")
        if not isinstance(artifact, Artifact):
            print("not built", label, str(artifact)[:200], flush=True)
            continue
        forward, outputs = variant_forward(artifact, case.problem, [truth.inputs])
        forward(0)
        torch.cuda.synchronize()
        if not right(outputs, truth):
            wrong.append(label)
            print("WRONG", label, flush=True)
            continue
        forwards[label], _ = variant_forward(artifact, problem, [inputs])
    searched = medians(forwards, 1, SEARCH_ROUNDS)
    best = sorted(searched, key=lambda label: searched[label])[:KEPT]
    sides = {label: forwards[label] for label in best}
    sides |= {name: baseline_forward(name, problem, [inputs]) for name in ("cudnn", "efficient")}
    others: dict[str, Callable[[SdpaProblem, Tensors], Forward]] = {"flex": flex_forward}
    others |= {"fa3": fa3} if problem.softcapped else {}
    for name, make in others.items():
        try:
            sides[name] = make(problem, inputs)
        except Exception as error:  # a compiler's own kinds
            print(name, "left out:", str(error)[:300], flush=True)
    taken = race(timers(sides, 1), rounds)
    beside = [name for name in taken if name not in best]
    baseline = min(beside, key=lambda name: spread(taken[name])["median"])
    return {
        "problem": str(problem),
        "impl": impl,
        "tried": len(forwards),
        "wrong": wrong,
        "us": {name: spread(us) for name, us in taken.items()},
        "baseline": baseline,
        "speedup": {label: ratios(taken[baseline], taken[label]) for label in best if label in taken},
    }


def main() -> int:
    """Prints a line a shape and writes the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.windows", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shapes", default=",".join(str(i + 1) for i in range(len(SHAPES))))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--points", type=int, default=12)
    given = parser.parse_args()
    rows: list[Figures] = []
    for number in map(int, given.shapes.split(",")):
        rows.append(row := timed_at(*SHAPES[number - 1], given.rounds, given.points))
        best = {name: round(us["median"], 2) for name, us in row["us"].items()}
        gained = [round(each["median"], 3) for each in row["speedup"].values()]
        print(row["problem"], best, row["baseline"], gained, "wrong:", len(row["wrong"]), flush=True)
        if given.json is not None:
            where = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
            given.json.write_text(json.dumps({"command": command_line(), **where, "shapes": rows}, indent=1) + "\n")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
