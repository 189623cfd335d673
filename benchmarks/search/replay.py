"""Samplers replayed on recorded spaces, through the driver and the fake backend, and scored. docs/method/replay.md.

    python -m benchmarks.search.replay SPACE.json[.gz] ... --sampler evolution random [--in-flight 1 16] [--seeds 200]
        [--jobs 2] [--json PATH] [--figure PATH.svg] [--keep FOLDER | --kept FOLDER] [--free-sampler] [--split]

A search takes some milliseconds for each evaluation, and what the sampler takes.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # searches run side by side

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.search.samplers import SAMPLERS
from autotuner.store import Store
from autotuner.values.errors import InputError
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.search.replay_run import load, replay, save
from benchmarks.search.replay_score import AXES, END, START, Floats, Score, Trace, Yardstick, mean_score
from benchmarks.search.replay_spaces import Recorded, read
from benchmarks.throughput.sweep_watch import Stopwatch, rounded

CHUNK = 5
"""So many searches share a store, and are what a process does at a time."""

SPACES: list[tuple[Recorded, Yardstick]] = []
"""Read before the processes are forked, which have them for nothing."""


class Case(NamedTuple):
    """A sampler on a space."""

    space: int
    sampler: str
    in_flight: int

    @property
    def file(self) -> str:
        """Where its traces are kept."""
        return f"{SPACES[self.space][0].name}__{self.sampler}__{self.in_flight}.npz"


class Task(NamedTuple):
    """Some searches of a case."""

    case: Case
    seeds: range
    charge: bool


class Done(NamedTuple):
    """What they did, and the CPU seconds of this process, by part of the driver."""

    traces: list[Trace]
    cpu: Counter[str]


def tasks(cases: Sequence[Case], seeds: int, charge: bool) -> Iterator[Task]:
    """All searches."""
    for case in cases:
        for first in range(0, seeds, CHUNK):
            yield Task(case, range(first, min(first + CHUNK, seeds)), charge)


def run(task: Task) -> Done:
    """The searches of a task, each a study of its own in one store."""
    (recorded, yardstick), case, watch = SPACES[task.case.space], task.case, Stopwatch()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, watch.watching():
        with closing(Store.open(f"{folder}/studies.db")) as store:
            traces = [
                replay(recorded, yardstick, case.sampler, seed, store, case.in_flight, task.charge)
                for seed in task.seeds
            ]
        watch.turn()
    return Done(traces, Counter(watch.cpu))


def run_all(cases: Sequence[Case], seeds: int, charge: bool, jobs: int) -> Iterator[tuple[Case, Done]]:
    """Case by case, as each is done."""
    todo = list(tasks(cases, seeds, charge))
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        results = pool.map(run, todo)
        for case in cases:
            parts = [next(results) for task in todo if task.case == case]
            yield case, Done([trace for part in parts for trace in part.traces], sum_of(parts))


def sum_of(parts: Sequence[Done]) -> Counter[str]:
    """The CPU seconds of all parts."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.cpu)
    return total


def kept(folder: Path, cases: Sequence[Case], seeds: int) -> Iterator[tuple[Case, Done]]:
    """Case by case from a folder that --keep wrote. Raises InputError when there is not enough."""
    for case in cases:
        path = folder / case.file
        if not path.is_file():
            raise InputError(f"{path}: no such file; --keep writes it")
        traces = load(path)
        if len(traces) < seeds:
            raise InputError(f"{path}: {len(traces)} searches; expected {seeds} at least, or --seeds {len(traces)}")
        yield case, Done(traces[:seeds], Counter())


Scored = dict[str, tuple[Score, Floats]]
"""By axis: the score, and those of the resamples."""


def row(case: Case, done: Done, scored: Scored) -> dict[str, Any]:
    """What the JSON has of a case."""
    recorded, yardstick = SPACES[case.space]
    proposals = sum(map(len, done.traces))
    curve = yardstick.curve(done.traces, "time")
    found: dict[str, Any] = {
        "space": recorded.name,
        "sampler": case.sampler,
        "in_flight": case.in_flight,
        **{axis: score._asdict() for axis, (score, _) in scored.items()},
        "evaluations_a_search": proposals / len(done.traces),
        "sampler_ms_a_proposal": 1e3 * sum(trace.sampler[-1] for trace in done.traces) / proposals,
        "curve": {name: getattr(curve, name).tolist() for name in ("best", "low", "high")},
    }
    return found | ({"cpu_ms_a_trial": _split(done, proposals)} if done.cpu else {})


def _split(done: Done, proposals: int) -> dict[str, float]:
    """Where the CPU time of a trial went; what the clocks charged to the sampler is no other part's."""
    sampler = sum(trace.sampler[-1] for trace in done.traces)
    asking = done.cpu["optuna"] + done.cpu["sampler"] - sampler
    parts = {"driver and races": done.cpu["rest"], "store": done.cpu["store"], "optuna": asking, "sampler": sampler}
    return {name: 1e3 * float(seconds) / proposals for name, seconds in parts.items()}


def facts(recorded: Recorded, yardstick: Yardstick, traces: Sequence[Trace]) -> dict[str, Any]:
    """What the JSON has of a space; its curve of random search belongs to the curves of all cases."""
    curve = yardstick.curve(traces, "time")
    return {
        "device": recorded.device,
        "parameters": len(recorded.space.parameters) - (len(recorded.space.values["IMPL"]) == 1),
        "points": len(recorded.space),
        "measured": len(yardstick.ascending),
        "optimum_ms": yardstick.optimum,
        "median_ms": yardstick.median,
        "budget": {"evaluations": yardstick.evaluations, "worker_seconds": yardstick.seconds},
        "curve": {"x": curve.x.tolist(), "random": curve.random.tolist()},
    }


def means(rows: Sequence[dict[str, Any]], scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Over the spaces, for each sampler and each number in flight."""
    kinds: dict[tuple[str, int], list[Scored]] = {}
    for each, scores in zip(rows, scored, strict=True):
        kinds.setdefault((each["sampler"], each["in_flight"]), []).append(scores)
    return [
        {"sampler": sampler, "in_flight": in_flight}
        | {axis: mean_score([each[axis] for each in mine])._asdict() for axis in AXES}
        for (sampler, in_flight), mine in kinds.items()
    ]


HEAD = ("space", "sampler", "in flight", "time", "95 %", "clock", "evaluations", "within 1 %", "ms a proposal")


def line(each: dict[str, Any]) -> str:
    """A row or a mean, for a person."""
    score = each["time"]
    cells = [
        each.get("space", "MEAN"),
        each["sampler"],
        str(each["in_flight"]),
        f"{score['p']:.3f}",
        f"{score['low']:.3f} to {score['high']:.3f}",
        f"{each['clock']['p']:.3f}",
        f"{each['evaluations']['p']:.3f}",
        f"{100 * score['within']:.0f} %",
        f"{each['sampler_ms_a_proposal']:.2f}" if "space" in each else "",
    ]
    cells += [f"{name} {ms:.2f}" for name, ms in each.get("cpu_ms_a_trial", {}).items()]
    return _columns(cells)


def _columns(cells: Sequence[str]) -> str:
    widths = (24, 11, 9, 7, 16, 7, 11, 10, 13)
    return "  ".join(
        [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)] + list(cells[len(widths) :])
    )


def arguments() -> argparse.Namespace:
    """From the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spaces", type=Path, nargs="+", metavar="SPACE")
    parser.add_argument("--sampler", nargs="+", default=["evolution"], choices=sorted(SAMPLERS), metavar="NAME")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1], metavar="N", help="evaluations side by side")
    parser.add_argument("--seeds", type=int, default=200, help="searches of each sampler on each space")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, metavar="PATH")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draws the curves; needs matplotlib")
    parser.add_argument("--free-sampler", action="store_true", help="do not charge the sampler's own time")
    parser.add_argument("--split", action="store_true", help="show where the CPU time of the searches went")
    holds.add_option(parser)
    traces = parser.add_mutually_exclusive_group()
    traces.add_argument("--keep", type=Path, metavar="FOLDER", help="write the traces there")
    traces.add_argument("--kept", type=Path, metavar="FOLDER", help="score the traces that --keep wrote; run nothing")
    return parser.parse_args()


def lower(kept: Path | None, means: Sequence[dict[str, Any]]) -> list[str]:
    """The mean scores that are lower than those of the result that was kept under that name, by their intervals."""
    if kept is None or not kept.exists():
        return ["there is no kept result to compare with: --hold needs the --json of one"]
    before = {(each["sampler"], each["in_flight"]): each["time"] for each in json.loads(kept.read_text())["means"]}
    told = []
    for each in means:
        then = before.get((each["sampler"], each["in_flight"]))
        if then is None:
            told.append(f"{each['sampler']} with {each['in_flight']} in flight is not in the kept result")
        elif each["time"]["high"] < then["low"]:
            told.append(f"{each['sampler']} scores {each['time']['p']:.3f}; it was {then['p']:.3f}")
    return told


def main() -> None:
    """Run, print, and write what was asked for."""
    args = arguments()
    started = time.monotonic()
    recorded = [read(path) for path in args.spaces]
    SPACES[:] = [(each, Yardstick(each.ms, each.cost)) for each in recorded]
    cases = [Case(*each) for each in product(range(len(SPACES)), args.sampler, args.in_flight)]
    if args.kept is None:
        results = run_all(cases, args.seeds, not args.free_sampler, args.jobs)
    else:
        results = kept(args.kept, cases, args.seeds)
    print(_columns(HEAD))
    rows, scored, spaces = [], list[Scored](), dict[str, Any]()
    for case, done in results:
        space, yardstick = SPACES[case.space]
        if args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
            save(args.keep / case.file, done.traces)
        scored.append({axis: yardstick.score(done.traces, axis) for axis in AXES})
        spaces[space.name] = facts(space, yardstick, done.traces)
        rows.append(row(case, done if args.split else done._replace(cpu=Counter()), scored[-1]))
        print(line(rows[-1]), flush=True)
    print(*map(line, means(rows, scored)), sep="\n")
    document = {
        **provenance(args.spaces),
        "seconds": time.monotonic() - started,
        "jobs": args.jobs,
        "seeds": args.seeds,
        "sampler_is_charged": not args.free_sampler,
        "axis_from_to": [START, END],
        "spaces": spaces,
        "means": means(rows, scored),
        "rows": rows,
    }
    unmet = lower(args.json, document["means"]) if args.hold else []
    if args.json is not None:
        args.json.write_text(json.dumps(rounded(document), indent=1) + "\n")
    if args.figure is not None:
        from benchmarks.search.replay_figures import draw

        draw(document, args.figure)
    holds.require(unmet)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"replay: {error}")
