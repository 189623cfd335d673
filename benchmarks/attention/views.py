"""Times views of (batch, length, heads, head_dim) beside dense tensors on this GPU, and what copies of them would cost.

    python -m benchmarks.attention.views [--shapes 1,2,3] [--trials 20] [--finals-minutes 0.4] [--points FILE]
        [--rounds 41] [--json FILE]
    python -m benchmarks.attention.views --merge FILE... --json FILE

Of each shape `autotuner tune` searches both layouts from empty stores, with as many trials each: of mma where the shape
leaves multiprocessors idle, else of wgmma. Or the points are those of FILE, which an earlier run wrote. Then, in one
run, replayed in random order, warm and cold: torch's backends on dense tensors and on views; the dense winner on dense
tensors; its parameters compiled for views, on views; the winner of views; and three `.contiguous()`. What gives a wrong
result is named and not timed. With --merge the rows of several runs, on several GPUs say, become one file. Needs a GPU
of sm_90 that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from autotuner.forge.build import build
from autotuner.gate.cases import Case
from autotuner.gate.tolerance import Truth, compute_truth
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault
from benchmarks.attention.decode import right
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
from benchmarks.tuned import Set, tuned

SPACE = "sdpa_cuda"
SHAPES = ("(1,8,512,64) float16 full", "(4,16,1024,64) float16 full", "(1,32,2048,128) float16 full")
BACKENDS = ("cudnn", "flash", "efficient")
STATES = {"warm": False, "cold": True}
DENSE, SAME, VIEWS, COPIES = "dense point", "dense point on views", "point of views", "copies"
"""The sides that are no backends; the first is on dense tensors."""
Points = dict[str, dict[str, Value]]
"""Parameters with IMPL, by problem."""


def of_views(text: str) -> str:
    """The same problem on views."""
    return f"{text} bshd"


def winners(text: str, trials: int, finals_minutes: float) -> tuple[Points, list[Figures]]:
    """The winners of both layouts, each swept from an empty store, and what is known of the sweeps. Raises SystemExit
    where a sweep has none."""
    asked = {"trials": trials, "finals_minutes": finals_minutes, "minutes": None, "seed": 0, "warm": False}
    options = argparse.Namespace(**asked, space=None, first_points="all")
    points: Points = {}
    rows: list[Figures] = []
    for each in (text, of_views(text)):
        with tempfile.TemporaryDirectory() as folder:
            row = tuned(Set("sdpa", SPACE, (each,)), each, Path(folder) / "studies.db", options)
        if "parameters" not in row:
            raise SystemExit(f"{each}: {row.get('error', 'no winner')}")
        points[each] = row["parameters"]
        kept = ("problem", "trials", "judged", "seconds", "confirmed", "search_estimate", "us", "baseline_us")
        rows.append({name: row[name] for name in kept})
    return points, rows


def points_in(path: Path, texts: Sequence[str]) -> Points:
    """The points of both layouts of each problem, in a file that this program wrote. Raises SystemExit where one is
    missing."""
    known: Points = {}
    for row in json.loads(path.read_text())["shapes"]:
        known |= row["points"]
    wanted = [each for text in texts for each in (text, of_views(text))]
    missing = [each for each in wanted if each not in known]
    if missing:
        raise SystemExit(f"{path} has no point of {', '.join(missing)}")
    return {each: known[each] for each in wanted}


def sides_of(text: str, points: Points) -> dict[str, tuple[str, dict[str, Value]]]:
    """The problem and the point of each variant that is built."""
    views = of_views(text)
    return {DENSE: (text, points[text]), SAME: (views, points[text]), VIEWS: (views, points[views])}


def built(sides: Mapping[str, tuple[str, dict[str, Value]]]) -> dict[str, Artifact | Fault]:
    """The build of each side."""
    here = Workbench(load_space("sdpa_cuda"))

    def one(side: tuple[str, dict[str, Value]]) -> Artifact | Fault:
        text, point = side
        return build(here.family, Variant.of("sdpa", "cuda", point), SdpaProblem.parse(text), here.toolchain)

    with ThreadPoolExecutor(len(sides)) as pool:
        return dict(zip(sides, pool.map(one, sides.values()), strict=True))


def copying(sets: Sequence[tuple[torch.Tensor, ...]]) -> Forward:
    """Dense copies of Q, K and V, as a model would make them. They lie apart, as results do, a set each."""
    copies: dict[int, tuple[torch.Tensor, ...]] = {}

    def forward(number: int) -> object:
        copies.pop(number, None)
        copies[number] = tuple(tensor.contiguous() for tensor in sets[number])
        return copies[number]

    return forward


def forwards_of(
    text: str, builds: Mapping[str, Artifact | Fault], truths: Mapping[bool, Truth], cold: bool
) -> tuple[dict[str, Forward], dict[bool, int], list[str]]:
    """The forwards by name, of how many sets of inputs those on views and those on dense tensors go round, and the
    variants that are wrong."""
    problems = {False: SdpaProblem.parse(text), True: SdpaProblem.parse(of_views(text))}
    sets = {views: input_sets(problems[views], truths[views].inputs, cold) for views in problems}
    found: dict[str, Forward] = {}
    wrong: list[str] = []
    for name, artifact in builds.items():
        views = name in (SAME, VIEWS)
        if not isinstance(artifact, Artifact):
            continue
        forward, outputs = variant_forward(artifact, problems[views], sets[views])
        for output in outputs:
            output.fill_(torch.nan)
        forward(0)
        torch.cuda.synchronize()
        if right(outputs, truths[views]):
            found[name] = forward
        else:
            wrong.append(name)
    for views, problem in problems.items():
        for backend in BACKENDS:
            found[named(backend, views)] = baseline_forward(backend, problem, sets[views])
    found[COPIES] = copying(sets[True])
    return found, {views: len(each) for views, each in sets.items()}, wrong


def named(backend: str, views: bool) -> str:
    """A backend on one of the layouts."""
    return f"{backend} on views" if views else backend


def on_views(name: str) -> bool:
    """Whether that side reads views."""
    return name.endswith("on views") or name in (VIEWS, COPIES)


def figures(taken: Mapping[str, Sequence[float]]) -> Figures:
    """Of a race's microseconds: the fastest backend on each layout, and how often each variant fits into its time
    there."""
    us = {name: spread(each) for name, each in taken.items()}
    found: Figures = {"us": us, "baseline": {}, "speedup": {}}
    for views, layout in ((False, "dense"), (True, "views")):
        there = [named(backend, views) for backend in BACKENDS if named(backend, views) in taken]
        found["baseline"][layout] = min(there, key=lambda name: us[name]["median"])
    for name in (DENSE, SAME, VIEWS):
        if name in taken:
            baseline = found["baseline"]["views" if on_views(name) else "dense"]
            found["speedup"][name] = ratios(taken[baseline], taken[name])
    return found


def timed_at(text: str, points: Points, rounds: int) -> Figures:
    """The figures of one shape."""
    builds = built(sides_of(text, points))
    cases = {views: SdpaProblem.parse(of_views(text) if views else text) for views in (False, True)}
    truths = {
        views: compute_truth(Case(name=str(problem), problem=problem, distribution="randn"), 1, "cuda")
        for views, problem in cases.items()
    }
    row: Figures = {"problem": text, "points": points, "left_out": {}}
    row["left_out"] |= {name: each.detail for name, each in builds.items() if isinstance(each, Fault)}
    for state, cold in STATES.items():
        forwards, count, wrong = forwards_of(text, builds, truths, cold)
        row["left_out"] |= dict.fromkeys(wrong, "it gives a wrong result")
        timers = {}
        for name, forward in forwards.items():
            try:
                timers[name] = timer(forward, count[on_views(name)])
            except RuntimeError as error:
                row["left_out"][name] = str(error).splitlines()[0].rstrip(".")
        row[state] = figures(race(timers, rounds))
    return row


def merged(paths: Sequence[Path]) -> Figures:
    """The rows of several files, in the order of the shapes; of one shape on one kind of device the last."""
    rows: dict[tuple[str, str], Figures] = {}
    for path in paths:
        for row in json.loads(path.read_text())["shapes"]:
            rows[row["problem"], row["device"]] = row
    order = {text: place for place, text in enumerate(SHAPES)}
    return {"shapes": sorted(rows.values(), key=lambda row: (row["device"], order[row["problem"]]))}


def said(row: Figures, state: str) -> str:
    """A line of the row."""
    us = {name: round(each["median"], 2) for name, each in row[state]["us"].items()}
    gained = {name: round(each["median"], 3) for name, each in row[state]["speedup"].items()}
    return f"{row['problem']} {state} {us} {gained} {row['left_out'] or ''}"


def main() -> int:
    """Prints two lines a shape and writes the figures; 1 where a variant was left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.views", description=__doc__)
    parser.add_argument("--shapes", default=",".join(str(place + 1) for place in range(len(SHAPES))))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--finals-minutes", type=float, default=0.4)
    parser.add_argument("--points", type=Path)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--merge", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.merge:
        if given.json is None:
            parser.error("--merge needs --json")
        given.json.write_text(json.dumps(merged(given.merge), indent=1) + "\n")
        return 0
    texts = [SHAPES[int(number) - 1] for number in given.shapes.split(",")]
    known = None if given.points is None else points_in(given.points, texts)
    where = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    rows: list[Figures] = []
    for text in texts:
        points, sweeps = (known, []) if known else winners(text, given.trials, given.finals_minutes)
        mine = {each: points[each] for each in (text, of_views(text))}
        row = timed_at(text, mine, given.rounds)
        command = command_line([each for each in (given.points,) if each is not None])
        rows.append({**row, **where, "command": command, "sweeps": sweeps})
        print(*(said(rows[-1], state) for state in STATES), sep="\n", flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps({"shapes": rows}, indent=1) + "\n")
    return int(any({DENSE, SAME, VIEWS} & {*row["left_out"]} for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
