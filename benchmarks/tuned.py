"""Tunes problems as a user does, by `autotuner tune` from an empty store, and keeps what the finals confirmed.

    python -m benchmarks.tuned SET [--problems TEXT] [--trials N] [--finals-minutes M] [--minutes M] [--seed N]
        [--space FILE] [--alone] [--first-points all|others] [--json FILE] [--missing] [--warm]

SET is a name of SETS, or `drawn` and a seed, such as drawn7: DRAWN problems of attention that nobody tuned for. Each
of its problems (with --problems, those that contain the text) is swept and goes through the finals. A row has the
confirmed ratio with its interval, the search's own estimate, microseconds of both sides, the share of the device's
ceilings, and how far apart the slowest and the fastest right variant are. Rows that the file holds of other problems,
devices and seeds stay; with --missing a problem that has a row of this device is left out. Without --warm no study
knows of another one. With --minutes the whole command has so long, and one store and one cache of builds are new for
each problem. Needs a device that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from autotuner.devices import DEVICES, Wishes
from autotuner.ops import OPS
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.values import config
from autotuner.values.problem import Problem
from benchmarks.attention.decode import SHAPES
from benchmarks.provenance import command_line

Row = dict[str, Any]


class Set(NamedTuple):
    """Problems that one space is tuned for."""

    op: str
    space: str
    """Empty: the device's default, as one who names no space has it."""
    problems: tuple[str, ...]


TOKENS = 16384
"""Of all sequences of a problem of the grid that FlashAttention 3's authors publish; 2,048 = heads * head_dim there."""


def grid(dims: Sequence[int], lengths: Sequence[int]) -> Iterator[str]:
    """Rows of FlashAttention 3's grid, bfloat16."""
    for dim, length, mask in product(dims, lengths, ("causal", "full")):
        yield f"({TOKENS // length},{2048 // dim},{length},{dim}) bfloat16 {mask}"


PEERS = (
    *grid((128, 64, 256), (4096, 2048, 8192, 1024, 16384, 512)),
    *(f"(4,48,{length},128) bfloat16 {mask}" for length in (2048, 4096, 1024, 8192) for mask in ("full", "causal")),
    *(f"({sizes}) bfloat16 causal bshd" for sizes in ("1,32:8,8192,128", "4,32:8,2048,128", "2,24:6,1500,128")),
)
"""That grid, that of tritonbench, and groups. What is raced most comes first: a race may end early."""
PEERS += tuple(problem.replace("bfloat16", "float16") for problem in PEERS)
PEERS += (*grid((192, 96, 80), (4096, 1024)),)
"""And the head dimensions that the grid leaves out."""

LARGE = tuple(
    f"({sizes}) float16 {mask}"
    for sizes in ("1,32,2048,128", "2,8,2048,64", "4,16,1024,64")
    for mask in ("full", "causal")
)
"""Problems that fill a GPU, float16."""

GOALS = {
    "(1,32,2048,128) float16 full": 1.17,
    "(4,48,2048,128) bfloat16 full": 1.18,
    "(1,32,2048,128) float16 causal": 1.4,
    "(2,24:6,1500,128) bfloat16 causal bshd": 1.45,
    "(1,32:8,1x4096,128) float16 full": 1.22,
    "(4,32:8,16x4096,128) float16 full": 1.8,
    "(3,5,333,64) bfloat16 causal": 1.6,
    "(1,8,512,64) float16 full": 1.97,
}
"""What one line is to find on an H200 in MINUTES, and OTHERS of that without first points of nearly the same."""
MINUTES, OTHERS = 1.3, 0.97
CPU_MINUTES = {"windows_cpu": 3.5, "one_line_cpu": 2.8}
"""Of a problem of a set: of the first torch's compiler has a quarter; the second is tuned twice, with --alone."""
ALONE = 0.97
"""The share of what a space of its own reaches that the default space is to reach on a CPU in the same time."""
COLD, COLD_MINUTES = "(1,8,512,64) float16 full", 0.75
"""The problem that has a crowned winner sooner."""

SETS = {
    "large": Set(
        "sdpa",
        "sdpa_cuda",
        (*LARGE, "(4,32,4096,128) float16 full", "(4,32,4096,128) float16 causal"),
    ),
    "odd": Set(
        "sdpa",
        "sdpa_cuda",
        ("(1,16,768,128) float16 full", "(1,16,777,128) float16 full", "(8,8,256,128) bfloat16 causal"),
    ),
    "decode": Set("sdpa", "sdpa_cuda", SHAPES),
    "small": Set(
        "sdpa",
        "sdpa_cuda",
        tuple(
            f"({sizes}) float16 {mask}"
            for sizes in ("1,8,512,64", "1,8,512,128", "1,4,128,64", "1,2,64,64", "2,2,64,64")
            for mask in ("full", "causal")
        ),
    ),
    "one_line": Set("sdpa", "", tuple(GOALS)),
    "one_line_cpu": Set(
        "sdpa",
        "sdpa_cpu",
        (
            "(1,8,512,64) float32 full",
            "(1,4,128,64) float32 full",
            "(1,8,512,64) float32 causal",
            "(1,8,512,64) bfloat16 full",
            "(1,8,2048,128) float32 full",
        ),
    ),
    "windows_cpu": Set(
        "sdpa",
        "sdpa_cpu",
        tuple(
            f"({sizes} {each}"
            for sizes, window, cap in (
                ("1,8,1024,64) float32 causal", 128, 50),
                ("1,8,2048,64) float32 causal", 256, 30),
                ("1,12,512,64) float32 full", 64, 50),
                ("1,16:4,1024,128) float32 causal", 512, 50),
                ("2,8,1024,64) bfloat16 causal", 128, 50),
                ("1,8:4,1024,256) float32 causal", 512, 50),
                ("4,4,777,64) float32 full", 100, 20),
            )
            for each in (f"window={window}", f"softcap={cap}")
        ),
    ),
    "peers": Set("sdpa", "", PEERS),
    "rmsnorm": Set(
        "rmsnorm",
        "rmsnorm_cuda",
        tuple(
            f"({sizes}) {dtype}"
            for dtype in ("bfloat16", "float16")
            for sizes in ("8192,4096", "4096,8192", "128,4096", "16384,1024", "1,8192")
        ),
    ),
}

CONFIRMED = {"low": "low", "mean": "mid", "high": "high", "processes": "processes"}
"""What a row has of what finals confirmed, and its name there."""

DRAWN = 12
MOST_FLOPS = 2e12
"""Of a problem that is drawn; its reference in float64 must come to an end."""


def drawn(seed: int) -> Set:
    """Problems of all lengths, head dimensions, masks, groups and 16-bit types."""
    draw, problems = random.Random(seed), list[str]()
    while len(problems) < DRAWN:
        length, heads, batch = (round(2 ** draw.uniform(low, high)) for low, high in ((6, 12), (0, 6), (0, 5)))
        group = draw.choice([each for each in (1, 1, 2, 4, 8) if heads % each == 0])
        dim = draw.choice((64, 80, 96, 128, 192, 256))
        mask, dtype = draw.choice(("full", "causal")), draw.choice(("float16", "bfloat16"))
        if 4 * batch * heads * length**2 * dim <= MOST_FLOPS:
            of_keys = f":{heads // group}" if group > 1 else ""
            problems.append(f"({batch},{heads}{of_keys},{length},{dim}) {dtype} {mask}")
    return Set("sdpa", "", tuple(problems))


def parts(name: str) -> list[tuple[str, ...]]:
    """Arguments of this program for a problem of the set each; the time may be over before the last."""
    if name == "one_line":
        how = ((1, "all"), (2, "all"), (1, "others"))
        runs = [(each, MINUTES, *of) for of in how for each in GOALS]
        for place, seed in ((0, 1), (len(GOALS) + 1, 2)):
            runs.insert(place, (COLD, COLD_MINUTES, seed, "all"))
    else:
        minutes, seeds = CPU_MINUTES.get(name, 0.8), (1, 2) if name == "one_line_cpu" else (0,)
        runs = [(each, minutes, seed, "all") for seed in seeds for each in problem_set(name).problems]
    more = ("--alone",) if name == "one_line_cpu" else ()
    return [
        (
            name,
            "--trials",
            "60",
            "--problems",
            each,
            "--minutes",
            str(minutes),
            "--seed",
            str(seed),
            "--first-points",
            of,
            *more,
        )
        for each, minutes, seed, of in runs
    ]


def problem_set(name: str) -> Set:
    """The set of that name. Raises ValueError where there is none."""
    if name.startswith("drawn"):
        return drawn(int(name.removeprefix("drawn")))
    if name not in SETS:
        raise ValueError(name)
    return SETS[name]


def tuned(wanted: Set, text: str, store: Path, options: argparse.Namespace) -> Row:
    """One problem's figures."""
    problem, space = OPS[wanted.op].problem.parse(text), options.space or wanted.space
    out = store.with_name("best.json")
    words = ["tune", *([space] if space else []), "--problem", text, "--trials", str(options.trials)]
    words += ["--seed", str(options.seed), "--store", f"sqlite:///{store}", "--out", str(out)]
    words += ["--first-points", options.first_points, *([] if options.warm else ["--cold"])]
    environment = dict(os.environ)
    if options.finals_minutes is not None:
        words += ["--finals-minutes", str(options.finals_minutes)]
    if options.minutes is not None:
        words += ["--minutes", str(options.minutes)]
        environment["AUTOTUNER_CACHE"] = str(store.with_suffix(".cache"))
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "autotuner", *words], capture_output=True, text=True, env=environment, check=False
    )
    row: Row = {"problem": str(problem), "space": space, "trials": options.trials, "exit_code": done.returncode}
    row |= {"seed": options.seed, "minutes": options.minutes, "first_points": options.first_points}
    row["seconds"] = round(time.monotonic() - started, 1)
    if done.returncode or not out.exists():
        return {**row, "error": (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]}
    best = json.loads(out.read_text())
    out.unlink()
    if not (best["confirmed"] or {}).get("crowned"):
        row["finals"] = [line for line in done.stdout.splitlines() if line.startswith("finals: ")]
    return row | figures(best, problem) | spread(store, best["study"])


def alone(row: Row, wanted: Set, store: Path, options: argparse.Namespace) -> Row:
    """The same of a space of the problem's own: that of the row with no implementation but the one that won."""
    path, impl = store.with_name("alone.toml"), row["parameters"]["IMPL"]
    file = (config.spaces_dir() / f"{row['space']}.toml").read_text()
    path.write_text(f"{file}\n[parameters]\nIMPL = [{json.dumps(impl)}]\n")
    narrowed = argparse.Namespace(**{**vars(options), "space": str(path)})
    return tuned(wanted, row["problem"], store, narrowed) | {"space": f"{row['space']}, {impl} alone"}


def figures(best: Row, problem: Problem) -> Row:
    """What an export says of its variant."""
    timing, baseline = best["measurement"]["timings"][0], best["baseline"][0]
    confirmed = best["confirmed"] or {}
    return {
        "device": best["device"]["name"],
        "environment": best["device"]["environment"],
        "cache": best["measurement"]["cache"],
        "parameters": best["parameters"],
        "crowned": confirmed.get("crowned", False),
        "confirmed": {of: confirmed.get(name) for of, name in CONFIRMED.items()},
        "search_estimate": best["measurement"]["speedup"]["mid"],
        "us": timing["median_us"],
        "baseline": baseline["backend"],
        "baseline_us": baseline["median_us"],
        "tflops": problem.flops / timing["median_us"] / 1e6,
        "gigabytes_a_second": problem.bytes / timing["median_us"] / 1e3,
    }


def spread(store: Path, study: str) -> Row:
    """What the store alone knows: the ceilings, every baseline, and how far right variants are apart."""
    with closing(Store.open(str(store))) as opened:
        best, summary = standings.best(opened, study), standings.summary(opened, study)
    assert best is not None
    calibration = best.record.session.calibration
    ceilings = calibration.ceilings
    return {
        "ceilings": ceilings.model_dump() if ceilings else None,
        "baselines_us": {timing.backend: timing.median_us for timing in calibration.timings},
        "baselines_left_out": calibration.left_out,
        "spread_worst_to_best": summary.spread.worst_to_best if summary.spread else None,
        "judged": summary.judged,
        "rejected": summary.by_fault,
    }


def keep(rows: list[Row], path: Path) -> None:
    """Writes the rows, and those of other problems and devices that the file holds."""
    held = [json.loads(path.read_text())] if path.exists() else []
    now = {"command": command_line(), "when": datetime.now(UTC).isoformat(timespec="seconds"), "rows": rows}
    path.write_text(json.dumps(merged([*held, now]), indent=1) + "\n")


def merged(documents: Sequence[Row]) -> Row:
    """One of several: of runs that were asked for the same the last row, each with the command that made it."""
    rows = {_of(row): {"command": of["command"], **row} for of in documents for row in of["rows"]}
    whole = {name: each for of in documents for name, each in of.items()}
    return {**whole, "rows": list(rows.values())}


LEAST_MEAN = 1.35
"""Of the speedups of problems that were drawn."""


def speedups(document: Row) -> list[Row]:
    """What finals confirmed, with an interval; first the slowest."""
    found = [row["confirmed"] for row in document["rows"] if "error" not in row]
    return sorted((each for each in found if each["low"] is not None), key=lambda each: float(each["mean"]))


def geometric_mean(document: Row) -> float:
    return math.exp(fmean(math.log(each["mean"]) for each in speedups(document)))


def unmet(document: Row) -> list[str]:
    """What does not hold of problems that were drawn: nowhere slower than torch, and LEAST_MEAN in the mean; or of
    GOALS, or of a default space beside the problems' own."""
    if any("alone" in row for row in document["rows"]):
        return [f"{told(row)}: {ALONE:.0%} is the goal" for row in document["rows"] if share(row) < ALONE]
    if all(row["problem"] in GOALS for row in document["rows"]):
        return [f"{told(row)}: {why}" for row in document["rows"] if (why := short_of_goal(row)) is not None]
    sure = speedups(document)
    lacking = len(document["rows"]) - len(sure)
    found = [f"{lacking} problems have no confirmed speedup"] if lacking else []
    found += [f"slower than torch: {each['mean']:.3f}x ({each['low']:.3f} to)" for each in sure if each["low"] < 1]
    if sure and geometric_mean(document) < LEAST_MEAN:
        found.append(f"the geometric mean is {geometric_mean(document):.3f}x")
    return found


def share(row: Row) -> float:
    """What was confirmed in the default space over what was in the problem's own; 0 where one is not known."""
    found, own = (each.get("confirmed", {}).get("mean") for each in (row, row.get("alone", {})))
    return float(found / own) if found and own else 0.0


def short_of_goal(row: Row) -> str | None:
    """What is missing, in words."""
    goal, found = GOALS[row["problem"]], row.get("confirmed") or {}
    if row["minutes"] < MINUTES:
        late = row["seconds"] > 60 * COLD_MINUTES
        return f"{60 * COLD_MINUTES:.0f} s and a crown are the goal" if late or not row.get("crowned") else None
    least = goal * (OTHERS if row["first_points"] == "others" else 1)
    return None if (found.get("mean") or 0) >= least else f"seed {row['seed']}: {least:.2f}x is the goal"


def _of(row: Row) -> tuple[object, ...]:
    """What was asked for, and the device."""
    asked = ("problem", "space", "device", "minutes", "first_points", "seed")
    return tuple(row.get(name) for name in asked)


def rows_of(path: Path | None, device: str) -> set[str]:
    """The problems that the file has a row of this device for."""
    held = json.loads(path.read_text())["rows"] if path is not None and path.exists() else []
    return {row["problem"] for row in held if row.get("device") == device}


def told(row: Row) -> str:
    """A line a problem."""
    if "error" in row:
        return f"{row['problem']}: exit code {row['exit_code']}: {row['error']}"
    found = row["confirmed"]
    low, mean, high = (found[name] or float("nan") for name in ("low", "mean", "high"))
    return (
        f"{row['problem']}: {mean:.3f}x ({low:.3f} to {high:.3f}), {row['us']:.2f} us; {row['baseline']}"
        f" {row['baseline_us']:.2f} us; {row['tflops']:.0f} TFLOP/s, {row['gigabytes_a_second']:.0f} GB/s;"
        f" {row['judged']} judged, {row['seconds']:.0f} s"
        + (f"; {of:.3f} of what its own space reaches" if (of := share(row)) else "")
    )


def main() -> int:
    """0 when every sweep came to its end."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuned", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("set", type=problem_set, metavar="SET", help=f"{', '.join(SETS)}, or drawn and a seed")
    parser.add_argument("--problems", default="", metavar="TEXT")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--finals-minutes", type=float, help="without --minutes 2, if left out")
    parser.add_argument("--minutes", type=float, help="of each problem's whole command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--space", help="instead of the set's")
    parser.add_argument("--alone", action="store_true", help="also with the implementation alone that won")
    parser.add_argument("--first-points", default="all", choices=("all", "others"))
    parser.add_argument("--missing", action="store_true", help="leave out what the file has of this device")
    parser.add_argument("--warm", action="store_true", help="later studies know what earlier ones found")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.minutes is None and options.finals_minutes is None:
        options.finals_minutes = 2.0
    wanted, rows = options.set, list[Row]()
    there = rows_of(options.json, DEVICES["cuda"].choose(Wishes()).device.name) if options.missing else set()
    with tempfile.TemporaryDirectory() as folder:
        for number, problem in enumerate(wanted.problems):
            if options.problems not in problem or str(OPS[wanted.op].problem.parse(problem)) in there:
                continue
            store = Path(folder) / ("s.db" if options.warm else f"{number}.db")
            rows.append(tuned(wanted, problem, store, options))
            if options.alone and "error" not in rows[-1]:
                rows[-1]["alone"] = alone(rows[-1], wanted, store.with_name(f"{number}_alone.db"), options)
            print(told(rows[-1]), flush=True)
            if options.json:
                keep(rows, options.json)
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    raise SystemExit(main())
