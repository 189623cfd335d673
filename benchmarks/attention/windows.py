"""Times attention in windows, with capped scores, sinks and biases on this GPU beside FlashAttention 3, torch's
compiled flex_attention and its SDPA with a mask, and writes what it found.

    python -m benchmarks.attention.windows [--json docs/results/windows_attention.json] [--shapes 1,2] [--rounds 21]
        [--points 12]

Of each shape it tries points of one implementation in search_spaces/sdpa_cuda.toml, the nearest first points among
them, keeps those that are right and fastest, and times them again beside the others: graphs of forwards, replayed in
random order, warm. Sinks are timed beside the same call without them. While one shape is timed, points of the next
ones are built. Without --shapes it times those that FILE lacks. Needs a GPU that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from autotuner.gate.cases import Matrix
from autotuner.gate.tolerance import compute_truth
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, moved
from autotuner.spaces.first_points import nearest, read_first_points
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.errors import AutotunerError
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Value
from autotuner.values.verdict import Fault
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
from benchmarks.attention.peers import agrees, fa3, flex
from benchmarks.provenance import command_line

GOALS = (
    ("wgmma", "(1,32:8,8192,128) bfloat16 causal window=1024"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 causal window=1024"),
    ("wgmma", "(1,32:8,8192,128) bfloat16 causal softcap=50"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 causal softcap=50"),
    ("wgmma", "(1,32:8,8192,128) bfloat16 causal bias=alibi"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 causal bias=alibi"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 full bias=full"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 full bias=heads"),
    ("wgmma", "(1,64:8,4096,64) bfloat16 causal window=128 sinks"),
)
FURTHER = (
    ("wgmma", "(1,16,4096,64) bfloat16 full window=256"),
    ("wgmma", "(1,32:8,16384,128) bfloat16 causal window=4096"),
    ("wgmma", "(8,16,1024,64) float16 full window=64"),
    ("wgmma", "(1,64:8,4096,64) bfloat16 causal window=128"),
    ("mma", "(2,16:8,2048,256) bfloat16 causal window=512"),
    ("decode", "(8,32:8,1x8192,128) bfloat16 causal window=1024 bottom_right"),
    ("wgmma", "(1,16,4096,64) bfloat16 causal softcap=30"),
    ("wgmma", "(1,8:4,4096,256) bfloat16 causal softcap=50"),
    ("wgmma", "(8,16,1024,64) float16 full softcap=20"),
    ("wgmma", "(1,32:8,16384,128) bfloat16 causal softcap=50"),
    ("wgmma", "(2,24:6,1500,128) float16 causal softcap=50"),
    ("wgmma", "(1,32:16,4096,128) bfloat16 causal window=4095 softcap=50"),
    ("wgmma", "(1,16,4096,64) bfloat16 causal bias=alibi"),
    ("wgmma", "(8,16,1024,64) float16 full bias=alibi"),
    ("wgmma", "(1,32,16384,128) bfloat16 causal bias=alibi"),
    ("wgmma", "(2,24:6,1500,128) float16 causal bias=alibi"),
    ("wgmma", "(4,12,512,64) bfloat16 full bias=alibi"),
    ("decode", "(8,32:8,1x8192,128) bfloat16 causal bias=alibi bottom_right"),
    ("wgmma", "(4,16,1024,64) bfloat16 full bias=full"),
    ("wgmma", "(1,32:8,4096,128) bfloat16 causal bias=heads"),
    ("wgmma", "(8,12,512,64) float16 full bias=heads"),
    ("wgmma", "(2,16,2000,64) bfloat16 full bias=full"),
    ("wgmma", "(2,24:6,1504,128) float16 full bias=full"),
    ("mma", "(2,16,777,64) float16 full bias=heads"),
    ("wgmma", "(1,64:8,4096,64) bfloat16 causal sinks"),
    ("wgmma", "(2,64:8,2048,64) bfloat16 causal window=128 sinks"),
    ("wgmma", "(4,32:8,2048,128) bfloat16 causal sinks"),
    ("wgmma", "(8,16,1024,64) float16 full sinks"),
    ("wgmma", "(2,24:6,1500,128) float16 causal sinks"),
    ("decode", "(8,64:8,1x8192,64) bfloat16 causal window=128 sinks bottom_right"),
)
"""Six of each kind, chosen before anything was tuned for them."""
SHAPES = (*GOALS, *FURTHER)
WANTED: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "wgmma": {
        "CONSUMERS": (2, 3),
        "BLOCK_N": (64, 96, 128, 160, 176),
        "OVERLAP": (1,),
        "BLOCKS_SM": (1,),
        "SOFTMAX": ("spec",),
    },
    "mma": {"WARPS_M": (4, 8), "WARPS_N": (1,), "BLOCK_N": (32, 64), "FIXED": (0,), "SPLIT": (1,), "MULTICAST": (1,)},
    "decode": {"WARPS_M": (1,), "WARPS_N": (2, 4), "BLOCK_N": (32, 64), "ROW_TILES": (1,), "PACK_GQA": (1,)},
}
"""Values of each implementation among which points are drawn."""
FIRST, KEPT, SEARCH_ROUNDS, AHEAD = 4, 2, 5, 3


def tried(workbench: Workbench, impl: str, problem: SdpaProblem, most: int) -> list[int]:
    """The first points of the nearest problems, and points of the space with the wanted values."""
    shipped = nearest(read_first_points(config.kernels_dir() / "sdpa", "cuda", "sdpa")[impl], [problem])
    known = [workbench.space.index_of({**each.point, "IMPL": impl}) for each in shipped[:FIRST]]
    space, wanted = workbench.space, WANTED[impl]
    points: Sequence[int] = range(len(space))
    if len(points) > 40000:
        points = random.Random(1).sample(points, 40000)
    found = [index for index in points if all(space.point(index).get(name) in each for name, each in wanted.items())]
    return [*(index for index in known if index is not None), *random.Random(2).sample(found, min(most, len(found)))]


class Points:
    """Points of a shape, built: of sinks those without them too."""

    def __init__(self, impl: str, text: str, most: int) -> None:
        self.problem, workbench = SdpaProblem.parse(text), _workbench(impl, text)
        points = [workbench.space.point(index) for index in tried(workbench, impl, self.problem, most)]
        self.built = _built(workbench, points)
        without = text.replace(" sinks", "")
        self.without = _built(_workbench(impl, without), points) if without != text else {}


def _workbench(impl: str, text: str) -> Workbench:
    return Workbench(load_space("sdpa_cuda", problems=[text]).only(impl))


def _built(workbench: Workbench, points: Sequence[Mapping[str, Value]]) -> dict[str, Artifact | Fault]:
    """What is built of these points, by what sets them apart."""
    found = sorted({index for point in points if (index := workbench.space.index_of(point)) is not None})
    labels = [
        " ".join(f"{name}={value}" for name, value in workbench.space.point(index).items() if name != "IMPL")
        for index in found
    ]
    return dict(zip(labels, workbench.build_all(found), strict=True))


def timed(impl: str, points: Points, rounds: int) -> Figures:
    """The figures of one shape."""
    problem = points.problem
    op = op_of(problem)
    case = Matrix(problem).case(op.cases.tuned(problem))
    truth = compute_truth(case, 1, "cuda")
    inputs = moved(op.tensors().inputs(problem, "randn", 1), "cuda")
    forwards: dict[str, Forward] = {}
    answers: dict[str, Tensors] = {}
    wrong: list[str] = []
    for label, artifact in points.built.items():
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
        forwards[label], answers[label] = variant_forward(artifact, problem, [inputs])
    searched = medians(forwards, 1, SEARCH_ROUNDS)
    best = sorted(searched, key=lambda label: searched[label])[:KEPT]
    sides = {label: forwards[label] for label in best}
    plain = points.without.get(best[0])
    if isinstance(plain, Artifact):
        bare = problem.model_copy(update={"sinks": "none"})
        sides["without"], _ = variant_forward(plain, bare, [inputs[:3]])
    sides |= {name: baseline_forward(name, problem, [inputs]) for name in ("cudnn", "efficient")}
    for name, make in {"flex": flex, "fa3": fa3}.items():
        try:
            forward = make(problem, inputs)
            agrees(forward(0), answers[best[0]][0])
            sides[name] = forward
        except Exception as error:  # a compiler's own kinds
            print(f"{name} left out:", str(error)[:160].replace("\n", " "), flush=True)
    taken = race(timers(sides, 1), rounds)
    others = [name for name in taken if name not in (*best, "without")]
    if not others:
        raise RuntimeError("nothing else takes it")
    of = {name: {label: ratios(taken[name], taken[label]) for label in best if label in taken} for name in others}
    if "without" in taken and best[0] in taken:
        of["without"] = {best[0]: ratios(taken["without"], taken[best[0]])}
    return {
        "problem": str(problem),
        "impl": impl,
        "tried": len(forwards),
        "wrong": wrong,
        "us": {name: spread(us) for name, us in taken.items()},
        "baseline": min(others, key=lambda name: spread(taken[name])["median"]),
        "speedup": of,
    }


KINDS = ("sinks", "softcap", "bias=alibi", "bias=", "window")
"""What sets the kinds of problems apart: of a problem that has several the first one."""


def merged(*documents: Figures) -> Figures:
    """One of several: of a problem the last row, with the command that made it."""
    rows = {row["problem"]: {"command": each["command"], **row} for each in documents for row in each["shapes"]}
    return {**documents[-1], "shapes": list(rows.values())}


def best_of(row: Figures) -> str:
    """The fastest variant."""
    return str(min((name for name in row["us"] if "=" in name), key=lambda name: float(row["us"][name]["median"])))


def spreads(row: Figures) -> dict[str, dict[str, float]]:
    """How many times as long as that the others take, with quartiles: without sinks one point alone is timed."""
    best = best_of(row)
    return {name: each.get(best) or next(iter(each.values())) for name, each in row["speedup"].items()}


def gains(row: Figures) -> dict[str, float]:
    """How many times as long as that the others take."""
    return {name: each["median"] for name, each in spreads(row).items()}


def told(ratio: dict[str, float]) -> str:
    """It, or that it is a tie."""
    low, high = ratio["low"], ratio["high"]
    return f"a tie ({low:.2f}-{high:.2f}x)" if low <= 1 <= high else f"{ratio['median']:.2f}x"


SDPA, FAR = ("cudnn", "efficient"), 2.0
"""torch's backends, which a line leaves out where one takes so many times as long as the fastest of the others."""


def table(found: Figures | None) -> str:
    """A line a shape of the goals, which are all bfloat16, and one of all others of a kind."""
    if found is None:
        return "Not kept yet."
    goals = {str(SdpaProblem.parse(text)) for _, text in GOALS}
    lines, others = [], dict[str, list[float]]()
    without: list[float] = []
    for row in found["shapes"]:
        gained = gains(row)
        without += [gained["without"]] if "without" in gained else []
        if row["problem"] in goals:
            us = row["us"][best_of(row)]["median"]
            near = FAR * min(x for name, x in gained.items() if name != "without")
            of = (f"{name} {told(x)}" for name, x in spreads(row).items() if name not in SDPA or x["median"] <= near)
            lines.append(f"- {row['problem'].replace(' bfloat16', '')}: {us:.0f}; {', '.join(of)}")
        else:
            kind = next(each for each in KINDS if each in row["problem"])
            others.setdefault(kind.rstrip("="), []).append(min(x for name, x in gained.items() if name != "without"))
    further = "; ".join(f"{kind} {min(each):.2f}-{max(each):.2f}x ({len(each)})" for kind, each in others.items())
    said = f"Further shapes, beside the fastest: {further}." if further else ""
    if without:
        said += f" Sinks beside none: {min(without):.3f}-{max(without):.3f}x."
    made = f"{found['device']}, torch {found['torch']}, by `python -m benchmarks.attention.windows`."
    return "\n".join([*lines, "", f"{said} {made}".strip()])


def main() -> int:
    """Prints a line a shape and writes the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.windows", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shapes", help="their numbers")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--points", type=int, default=12)
    given = parser.parse_args()
    where = {"command": command_line(), "device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    found: Figures = {**where, "shapes": []}
    if given.json is not None and given.json.exists():  # of other shapes it keeps what it has
        found = json.loads(given.json.read_text())
    has = {row["problem"] for row in found["shapes"]}
    shapes = [each for each in SHAPES if str(SdpaProblem.parse(each[1])) not in has]
    if given.shapes:
        shapes = [SHAPES[number - 1] for number in map(int, given.shapes.split(","))]
    ahead = ThreadPoolExecutor(AHEAD)
    due = [ahead.submit(Points, impl, text, given.points) for impl, text in shapes]
    for (impl, text), points in zip(shapes, due, strict=True):
        try:
            row = timed(impl, points.result(), given.rounds)
        except (AutotunerError, RuntimeError, IndexError) as error:
            print(f"{text}: not timed: {error}", flush=True)
            continue
        best = {name.replace(" ", ","): round(us["median"], 2) for name, us in row["us"].items()}
        gained = {name: [round(of["median"], 3) for of in each.values()] for name, each in row["speedup"].items()}
        print(row["problem"], best, gained, "wrong:", len(row["wrong"]), flush=True)
        found = merged(found, {**where, "shapes": [row]})
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(row["wrong"] for row in found["shapes"]))


if __name__ == "__main__":
    raise SystemExit(main())
