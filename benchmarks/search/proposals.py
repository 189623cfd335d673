"""Time and memory of our sampler's proposals in spaces of different sizes, one in flight and many.

    python -m benchmarks.search.proposals [--trials 300] [--json PATH]

Each study is in memory; what is told is made up, smooth in the numbers, with rejects. A proposal's time is the wall
time until its point is known. Each size has a process of its own, whose peak memory is given.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import platform
import random
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import numpy as np
import optuna

from autotuner.search.evolution import EvolutionarySampler
from autotuner.search.settings import DEFAULT
from autotuner.spaces.space import Space, SpaceFile
from benchmarks.provenance import command_line
from benchmarks.throughput.space_enumeration import cpu_model, peak_rss_mb

TEXT = """
title = "Tiles of two kinds of kernels"
family = "sdpa"
backend = "cpu"

[[problems]]
batch = 1
heads = 8
seq_q = 512
seq_k = 512
head_dim = 64
dtype = "float32"

[parameters]
IMPL = ["plain", "tiled", "split"]
BLOCK_M = [16, 32, 48, 64, 96, 128, 192, 256]
BLOCK_N = [16, 32, 48, 64, 96, 128, 192, 256]
UNROLL = [1, 2, 4, 8]
STAGES = [1, 2, 3, 4]
ORDER = ["rows", "columns", "zigzag"]
{more}
[parameters.SPLITS]
values = [2, 4, 8, 16]
when = 'IMPL == "split"'

[[constraints]]
expression = "BLOCK_M * BLOCK_N <= 32768"
reason = "the tile of scores fits"
[[constraints]]
expression = "BLOCK_N % UNROLL == 0 and STAGES * BLOCK_N <= 768"
reason = "no remainder, and room for the stages"

[default]
IMPL = "plain"
BLOCK_M = 32
BLOCK_N = 32
UNROLL = 1
STAGES = 1
ORDER = "rows"
{default}
"""
MORE = {
    "small": ("", ""),
    "large": ("WARPS = [1, 2, 4, 8]\nPREFETCH = [0, 1, 2]\n", "WARPS = 4\nPREFETCH = 0\n"),
    "larger": (
        "WARPS = [1, 2, 4, 8]\nPREFETCH = [0, 1, 2]\nPACK_V = [0, 1]\nREGISTERS = [64, 128, 255]\n",
        "WARPS = 4\nPREFETCH = 0\nPACK_V = 0\nREGISTERS = 255\n",
    ),
}
IN_FLIGHT = (1, 32)


def space(name: str) -> Space:
    """The space of that size."""
    more, default = MORE[name]
    text = TEXT.replace("{more}", more).replace("{default}", default)
    return Space.enumerate(SpaceFile.parse(text, Path(f"{name}.toml")), {"THREADS_ALLOWED": 1})


def objective(row: np.ndarray[Any, Any]) -> float:
    """Made up: a bowl in the places of the values, and a corner that is rejected."""
    if row[1] >= 6 and row[3] == 3:
        return math.inf
    return float(sum(0.05 * (place - 2) ** 2 / (1 + column) for column, place in enumerate(row)))


def study_of(name: str, in_flight: int, trials: int) -> dict[str, Any]:
    """One study, and how long its proposals took."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    points = space(name)
    before = peak_rss_mb()
    sampler = EvolutionarySampler(points, 0)
    study = optuna.create_study(sampler=sampler)
    draw = random.Random(0)
    flying: list[optuna.Trial] = []
    milliseconds = []
    for _ in range(trials):
        began = time.perf_counter()
        trial = study.ask()
        point = trial.relative_params
        milliseconds.append(1e3 * (time.perf_counter() - began))
        for parameter in point:
            trial.suggest_categorical(parameter, points.values[parameter])
        flying.append(trial)
        if len(flying) == in_flight:
            ended = flying.pop(draw.randrange(in_flight))
            place = points.index_of(ended.params)
            assert place is not None
            value = objective(points.rows[place])
            ended.set_constraint("gate", float(math.isinf(value)))
            study.tell(ended, value)
    return {
        "valid_points": len(points),
        "screened_whole": len(points) <= DEFAULT.screened_whole,
        "in_flight": in_flight,
        "trials": trials,
        "mean_ms": round(fmean(milliseconds), 2),
        "median_ms": round(median(milliseconds), 2),
        "p95_ms": round(quantiles(milliseconds, n=20)[-1], 2),
        "longest_ms": round(max(milliseconds), 2),
        "peak_rss_mb": round(peak_rss_mb(), 1),
        "rss_before_mb": round(before, 1),
        "best": round(study.best_value, 4),
    }


def main() -> None:
    """Measure, print, and write JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    rows = []
    for name in MORE:
        for in_flight in IN_FLIGHT:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
                rows.append(alone.submit(study_of, name, in_flight, args.trials).result())
            print(rows[-1], flush=True)
    if args.json is not None:
        document = {
            "command": command_line(),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "cpu": cpu_model(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "rows": rows,
        }
        args.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
