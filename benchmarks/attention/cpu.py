"""Tunes the CPU space for several problems, with one thread and with all, times the winners again, keeps the figures.

    python -m benchmarks.attention.cpu [PROBLEM ...] [--trials N] [--json docs/results/cpu_attention.json]

For each problem and number of threads: a sweep; then the best variant in three fresh processes, 30 blocks each against
the pinned SDPA backend interleaved in the same process, and 30 blocks against a second load of itself (A/A). The median
of the three races, not the sweep's own estimate, is the result. Rows of other problems that the JSON file holds
stay. Needs a quiet machine, for half an hour on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.store import Store
from autotuner.tuning import again
from autotuner.tuning.again import Race
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Budget, Driver, Event, Judged
from autotuner.tuning.workbench import Workbench, load_space
from benchmarks.provenance import command_line

BLOCKS = 30
SPACE = "sdpa_cpu"
PROBLEMS = (
    "(1,8,512,64) float32 full",
    "(1,4,128,64) float32 full",
    "(1,8,512,64) float32 causal",
    "(1,8,512,64) bfloat16 full",
    "(1,8,2048,128) float32 full",
)


def sweep(store: Store, space: str, problem: str, threads: int | None, trials: int) -> tuple[Workbench, str]:
    """Runs a sweep; the workbench and the name of its study."""
    workbench = Workbench(load_space(space, threads, [problem]))

    def listen(event: Event) -> None:
        if isinstance(event, Judged) and event.best is not None:
            print(f"\r{problem}: {event.judged}/{trials}, best ln ratio {event.best:+.3f}", end="", file=sys.stderr)

    with closing(workbench.executor()) as executor:
        driver = Driver(store, executor, workbench.plan(), listen)
        driver.run(Budget(trials=trials))
    print(file=sys.stderr)
    return workbench, driver.name


def speedup(race: Race) -> dict[str, float]:
    """t_opponent / t_variant with its interval."""
    return {"low": race.speedup.low, "median": race.speedup.mid, "high": race.speedup.high}


def row(store: Store, workbench: Workbench, study: str, seconds: float) -> dict[str, Any]:
    """All figures of one sweep."""
    summary, best = standings.summary(store, study), standings.best(store, study)
    assert best is not None
    races = sorted(
        (again.race(store, study, itself=False, blocks=BLOCKS) for _ in range(3)), key=lambda r: -r.speedup.mid
    )
    race, self_race = races[1], again.race(store, study, itself=True, blocks=BLOCKS)
    (problem,) = workbench.conditions.problems
    return {
        "command": command_line(),
        "space": workbench.space.name,
        "problem": str(problem),
        "threads": workbench.conditions.threads,
        "cache": workbench.conditions.cache,
        "valid_points": len(workbench.space),
        "judged": summary.judged,
        "verdicts": {str(verdict): count for verdict, count in summary.by_verdict.items()},
        "seconds": round(seconds, 1),
        "baseline": race.against,
        "speedup": speedup(race),
        "speedups": [speedup(each)["median"] for each in races],
        "search_estimate": best.entry.speedup.mid,
        "microseconds": best.entry.median_us,
        "gflops": problem.flops / best.entry.median_us / 1e3,
        "blocks": race.blocks,
        "aa_ratio": {  # t_variant / t_itself, as the kept results have it
            "low": 1 / self_race.speedup.high,
            "median": 1 / self_race.speedup.mid,
            "high": 1 / self_race.speedup.low,
        },
        "aa_winner": self_race.winner,
        "spread_worst_to_best": summary.spread.worst_to_best if summary.spread else None,
        "best": best.outcome.variant.point,
    }


def merged(rows: list[dict[str, Any]], path: Path | None) -> list[dict[str, Any]]:
    """The new rows, with those of other problems and thread counts that the file holds, in the order of PROBLEMS."""
    new = {(row["problem"], row["threads"]): row for row in rows}
    old = json.loads(path.read_text())["rows"] if path and path.exists() else []
    both = {**{(row["problem"], row["threads"]): row for row in old}, **new}
    return [both[key] for key in sorted(both, key=lambda key: (PROBLEMS.index(key[0]), key[1]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", default=PROBLEMS)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 0], help="0 stands for all")
    parser.add_argument("--store", type=Path, help="keep the studies here, and go on with them")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, closing(Store.open(str(options.store or f"{folder}/s.db"))) as store:
        for problem, threads in itertools.product(options.problems, options.threads):
            started = time.monotonic()
            workbench, study = sweep(store, SPACE, problem, threads or None, options.trials)
            rows.append(row(store, workbench, study, time.monotonic() - started))
            print(json.dumps(rows[-1]), flush=True)
    document = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": workbench.device.name,
        "environment": workbench.device.environment,
        "compiler": workbench.toolchain.version,
        "rows": merged(rows, options.json),
    }
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
