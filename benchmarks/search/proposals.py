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
from autotuner.spaces.space import Space
from autotuner.tuning.workbench import Workbench, load_space
from benchmarks.provenance import command_line
from benchmarks.throughput.space_enumeration import cpu_model, peak_rss_mb

SPACES = {
    "small": (str(Path(__file__).parent / "spaces" / "sdpa_mission.toml"), "sm_90"),
    "large": ("sdpa_cuda", "sm_80"),
    "larger": ("sdpa_cuda", "sm_90"),
}
"""Of each size a space, and the architecture that it is for."""
IN_FLIGHT = (1, 32)


def space(name: str) -> Space:
    """The space of that size."""
    file, arch = SPACES[name]
    return Workbench(load_space(file), arch=arch).space


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
    if args.trials <= max(IN_FLIGHT):
        parser.error(f"--trials: some must end, of which {max(IN_FLIGHT)} are in flight")
    rows = []
    for name in SPACES:
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
