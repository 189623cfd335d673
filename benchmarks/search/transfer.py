"""What a search gains from a related one: recorded spaces of one op, every ordered pair of them. docs/method/search.md.

    python -m benchmarks.search.transfer SPACE.json.gz SPACE.json.gz ... [--seeds 100] [--evaluations 100] [--jobs 2]
        [--sampler evolution] [--json PATH] [--hold]

For each seed the source is searched cold, with a budget, and the target thrice: cold, from what the store has of the
source, and cold as if its space file expected no latency ("unaided"). Axis: evaluations; the sampler's own time counts
nothing, so that the figures are the same on every machine.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # searches run side by side

import argparse
import json
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotuner.search.samplers import SAMPLERS
from autotuner.store import Store
from autotuner.tuning.transfer import mapped
from autotuner.values.errors import InputError
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.search.replay_run import Clock, VirtualExecutor, search
from benchmarks.search.replay_score import BOOTSTRAPS
from benchmarks.search.replay_spaces import Recorded, read
from benchmarks.throughput.sweep_watch import rounded

Floats = NDArray[np.float64]

WITHIN = 0.02
"""A search has found the optimum when it is this close, relative."""
SHOWN = (10, 20, 40, 80)
"""The best so far is compared after each of the first evaluations; after these the ratio is shown."""
FARTHER = 1_000_000
"""Seeds of the sources' searches: this much above those of the targets, which they have nothing to do with."""
CHUNK = 5
"""So many seeds are what a process does at a time."""

SPACES: list[Recorded] = []
"""Read before the processes are forked, which have them for nothing. After them come the same, unaided."""


class Task(NamedTuple):
    """Some searches of all targets of a source; of a space alone, cold, where there is no source."""

    source: int | None
    targets: tuple[int, ...]
    seeds: range
    sampler: str
    evaluations: int


class Found(NamedTuple):
    """What one search of a target came to."""

    best: Floats
    """(SHOWN[-1],): the best milliseconds so far; the space's slowest before anything was measured."""
    until: int
    """So many evaluations until it was within WITHIN of the optimum."""


def unaided(recorded: Recorded) -> Recorded:
    """The same space, whose file expects no latency."""
    branches = [
        replace(each, branch=each.branch.model_copy(update={"expected_latency": {}}))
        for each in recorded.space.branches
    ]
    file = recorded.space.file.with_branches(each.branch for each in branches)
    return replace(recorded, space=replace(recorded.space, file=file, branches=tuple(branches)))


def near_optimal(recorded: Recorded) -> frozenset[int]:
    """The places of the points within WITHIN of the optimum."""
    return frozenset(np.flatnonzero(recorded.ms <= np.nanmin(recorded.ms) * (1 + WITHIN)).tolist())


def searched(recorded: Recorded, sampler: str, seed: int, store: Store, warm: bool) -> Found:
    """One search of a target, at least as long as curves are compared and until it is near the optimum."""
    clock, goal = Clock(charge=False), near_optimal(recorded)
    executor = VirtualExecutor(recorded, 1, clock, 0.0, SHOWN[-1], goal)
    search(recorded, executor, clock, sampler, seed, store, warm)
    rows = executor.trace().rows
    until = next(count for count, row in enumerate(rows.tolist(), 1) if row in goal)
    best = np.fmin.accumulate(np.fmin(recorded.ms[rows], np.nanmax(recorded.ms)))
    return Found(np.asarray(best[np.minimum(np.arange(SHOWN[-1]), len(best) - 1)]), until)


def run(task: Task) -> list[list[Found]]:
    """For each target, a search a seed."""
    found: list[list[Found]] = [[] for _ in task.targets]
    memory = Path("/dev/shm")
    for seed in task.seeds:
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
            folder = Path(name)
            if task.source is not None:
                _search_source(SPACES[task.source], task, seed, folder / "source.db")
            for target, mine in zip(task.targets, found, strict=True):
                path = folder / f"{target}.db"
                if task.source is not None:
                    shutil.copy(folder / "source.db", path)
                with closing(Store.open(str(path))) as store:
                    mine.append(searched(SPACES[target], task.sampler, seed, store, task.source is not None))
    return found


def _search_source(recorded: Recorded, task: Task, seed: int, path: Path) -> None:
    clock = Clock(charge=False)
    executor = VirtualExecutor(recorded, 1, clock, 0.0, task.evaluations)
    with closing(Store.open(str(path))) as store:
        search(recorded, executor, clock, task.sampler, seed + FARTHER, store)


Results = dict[tuple[int | None, int], list[Found]]
"""By source, None for a cold search, and target, by its place in SPACES: a search a seed."""


def run_all(spaces: int, seeds: int, sampler: str, evaluations: int, jobs: int) -> Results:
    """Every cold search, also unaided, and every pair of `spaces` spaces."""
    chunks = [range(first, min(first + CHUNK, seeds)) for first in range(0, seeds, CHUNK)]
    todo = [
        Task(source, tuple(each for each in targets if each != source), chunk, sampler, evaluations)
        for chunk in chunks
        for source, targets in ((None, range(2 * spaces)), *((each, range(spaces)) for each in range(spaces)))
    ]
    results: Results = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        for task, found in zip(todo, pool.map(run, todo), strict=True):
            for target, mine in zip(task.targets, found, strict=True):
                results.setdefault((task.source, target), []).extend(mine)
    return results


# Comparing ----------------------------------------------------------------------------------------------------------


def row(source: int, target: int, results: Results) -> dict[str, Any]:
    """What the JSON has of a pair. Searches of one seed begin at the same default point, so they are drawn together."""
    cold, warm, bare = results[None, target], results[source, target], results[None, target + len(SPACES) // 2]
    draws = np.random.default_rng(0).integers(0, len(cold), (BOOTSTRAPS, len(cold)))
    before, after, alone = (np.array([each.until for each in side], dtype=np.float64) for side in (cold, warm, bare))
    best_cold, best_warm = (np.stack([each.best for each in side]) for side in (cold, warm))

    def best(count: int) -> dict[str, float]:
        return _ratio(best_cold[:, count - 1], best_warm[:, count - 1], draws, np.mean)

    worst = 1 + int(np.argmax(best_warm.mean(axis=0) / best_cold.mean(axis=0)))
    return {
        "source": SPACES[source].name,
        "target": SPACES[target].name,
        "optimum_of_source_there": _optimum_there(SPACES[source], SPACES[target]),
        **{
            f"{name}_evaluations": {
                "cold": float(of(before)),
                "warm": float(of(after)),
                "ratio": _ratio(before, after, draws, of),
                "unaided": float(of(alone)),
                "ratio_to_unaided": _ratio(alone, after, draws, of),
            }
            for name, of in (("median", np.median), ("mean", np.mean))
        },
        "best_so_far": {str(count): best(count) for count in SHOWN},
        "worst_best_so_far": {"after": worst, "ratio": best(worst)},
    }


def _ratio(cold: Floats, warm: Floats, draws: NDArray[np.int64], of: Callable[..., Any]) -> dict[str, float]:
    """Warm over cold, of the searches (n,) and of their resamples (draws, n): the ratio and its 95 % interval."""
    low, high = np.percentile(of(warm[draws], axis=1) / of(cold[draws], axis=1), (2.5, 97.5))
    return {"ratio": float(of(warm) / of(cold)), "low": float(low), "high": float(high)}


def _optimum_there(source: Recorded, target: Recorded) -> float | None:
    """The milliseconds of the source's optimum in the target over the target's own; None where it cannot be had."""
    place = mapped(source.space.point(int(np.nanargmin(source.ms))), target.space)
    ms = float("nan") if place is None else float(target.ms[place])
    return None if np.isnan(ms) else ms / float(np.nanmin(target.ms))


def facts(recorded: Recorded) -> dict[str, Any]:
    """What the JSON has of a space."""
    measured = recorded.ms[~np.isnan(recorded.ms)]
    return {
        "problems": [str(problem) for problem in recorded.space.file.problems],
        "device": recorded.device,
        "points": len(recorded.space),
        "measured": len(measured),
        "optimum_ms": float(measured.min()),
        "median_ms": float(np.median(measured)),
        "near_optimal": len(near_optimal(recorded)),
    }


def line(each: dict[str, Any]) -> str:
    """A pair, for a person."""
    median, mean, worst = each["median_evaluations"], each["mean_evaluations"], each["worst_best_so_far"]
    shown = "  ".join(f"{count}: {ratio['ratio']:.3f}" for count, ratio in each["best_so_far"].items())
    there = "-" if each["optimum_of_source_there"] is None else f"{each['optimum_of_source_there']:.2f}"
    return (
        f"{each['source']:>16} -> {each['target']:<16} optimum there {there:<6} "
        f"median {median['cold']:.0f} -> {median['warm']:.0f}  mean {mean['cold']:.1f} -> {mean['warm']:.1f}  "
        f"ratio {mean['ratio']['ratio']:.2f} ({mean['ratio']['low']:.2f} to {mean['ratio']['high']:.2f})  "
        f"unaided {mean['unaided']:.1f}, {mean['ratio_to_unaided']['ratio']:.2f}  "
        f"best so far {shown}  worst {worst['ratio']['ratio']:.3f} after {worst['after']}"
    )


def unmet(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What must hold of the mean evaluations until near the optimum, and does not: on each pair, and in the geometric
    mean over the pairs."""
    found = []
    for name, against, each_at_most, mean_at_most in (
        ("ratio", "a cold search", 0.5, 0.4),
        ("ratio_to_unaided", "one that expects no latency", 0.4, 0.2),
    ):
        ratios = {f"{each['source']} -> {each['target']}": each["mean_evaluations"][name]["ratio"] for each in rows}
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        found += [f"{pair}: {ratio:.2f} of {against}" for pair, ratio in ratios.items() if ratio > each_at_most]
        found += [f"over all pairs {mean:.2f} of {against}, not {mean_at_most}"] if mean > mean_at_most else []
    return found


def arguments() -> argparse.Namespace:
    """From the command line. Raises InputError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spaces", type=Path, nargs="+", metavar="SPACE")
    parser.add_argument("--sampler", default="evolution", choices=sorted(SAMPLERS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=100, help="searches of each pair")
    parser.add_argument("--evaluations", type=int, default=100, help="how long a source is searched")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    found = parser.parse_args()
    if len(found.spaces) < 2:
        raise InputError("one space: give two or more, recorded for different problems")
    return found


def pairs(count: int) -> Iterator[tuple[int, int]]:
    """All ordered pairs of `count` spaces."""
    return permutations(range(count), 2)


def document(args: argparse.Namespace, rows: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What is kept."""
    return {
        **provenance(args.spaces),
        "seconds": seconds,
        "sampler": args.sampler,
        "seeds": args.seeds,
        "evaluations_of_a_source": args.evaluations,
        "within": WITHIN,
        "compared_until": SHOWN[-1],
        "spaces": {recorded.name: facts(recorded) for recorded in SPACES[: len(SPACES) // 2]},
        "rows": list(rows),
    }


def main() -> None:
    """Run, print, and write what was asked for."""
    args, started = arguments(), time.monotonic()
    spaces = [read(path) for path in args.spaces]
    SPACES[:] = [*spaces, *map(unaided, spaces)]
    results = run_all(len(spaces), args.seeds, args.sampler, args.evaluations, args.jobs)
    rows = [row(source, target, results) for source, target in pairs(len(spaces))]
    print(*map(line, rows), sep="\n")
    if args.json is not None:
        found = document(args, rows, time.monotonic() - started)
        args.json.write_text(json.dumps(rounded(found), indent=1) + "\n")
    if args.hold:
        holds.require(unmet(rows))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"transfer: {error}")
