"""The whole measuring stack on devices whose truth is known: who is crowned, found, covered and lost.

    python -m benchmarks.timing.simulated_truth [--sweeps 500] [--jobs 2] [--json PATH] [--hold]

Each sweep is a real one: the driver's races, its A/A tests and the finals in processes of their own, on the fake
backend. For each deviations there are sweeps in which the best candidates are equal, and others in which one is 2 %
faster. Seeds are fixed. The JSON also has the comparison of methods (benchmarks/timing/finals_methods.py). A
sweep takes about a quarter of a second.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from autotuner.race.confirm import CROWN_ALPHA, FINAL_BLOCKS, PROCESSES
from autotuner.store import Store
from benchmarks import holds
from benchmarks.provenance import command_line
from benchmarks.timing import finals_methods
from tests.helpers.sweeps import CANDIDATES, REGIMES, Tally, sweep

CHUNK = 50


class Task(NamedTuple):
    """Some sweeps of one kind."""

    regime: str
    better: bool
    seeds: range


def tasks(sweeps: int) -> Iterator[Task]:
    for regime in REGIMES:
        for better in (False, True):
            for first in range(0, sweeps, CHUNK):
                yield Task(regime, better, range(first, min(first + CHUNK, sweeps)))


def run(task: Task) -> Tally:
    """The sweeps of a task, in a store of their own."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, closing(Store.open(f"{folder}/studies.db")) as store:
        for seed in task.seeds:
            tally.add(sweep(store, task.regime, task.better, seed))
    return tally


def row(regime: str, better: bool, tally: Tally) -> dict[str, Any]:
    """What the JSON has of one kind of sweep. Counts are pairs: those of which it holds, and all."""
    return {
        "regime": regime,
        "deviations": REGIMES[regime].model_dump(),
        "one_is_2_percent_better": better,
        "counts": {name.replace(" ", "_"): pair for name, pair in sorted(tally.counts.items())},
        "blocks_median": median(tally.blocks),
        "blocks_mean": round(fmean(tally.blocks), 2),
        "blocks_median_of_5_percent_slower": median(tally.slower_blocks) if tally.slower_blocks else None,
        "finalists_median": median(tally.finalists),
        "tie_median": round(median(tally.ties), 5),
        "tie_largest": round(max(tally.ties), 5),
        "leader_half_width_median": round(median(tally.widths), 5),
    }


HEAD = (
    "regime",
    "best ones",
    "crowned",
    "found",
    "in tie",
    "covered",
    "leader's",
    "equal lost",
    "5 % removed",
    "blocks",
)


def line(row: dict[str, Any]) -> str:
    """For a person."""

    def share(name: str) -> str:
        part, whole = row["counts"].get(name, (0, 0))
        return f"{100 * part / whole:.1f} %" if whole else "-"

    cells = [row["regime"], "one +2 %" if row["one_is_2_percent_better"] else "equal"]
    names = ("crowned_wrongly", "found", "tied", "covered", "leader_covered", "equal_lost", "5_%_slower_removed")
    return "  ".join(f"{cell:>16}" for cell in [*cells, *map(share, names), str(row["blocks_median"])])


LIMITS = {
    "crowned_wrongly": (0.0, 0.05),
    "covered": (0.93, 1.0),
    "leader_covered": (0.9, 1.0),
    "5_%_slower_removed": (0.95, 1.0),
}
"""Shares that must hold in every deviations: the least and the most."""
LEADER_COVERED, CROWNED = 0.92, 0.05
"""The same of each row of the methods, whose shares are of finals_methods.FINALS: the truth is 0.95 at least, and 0.02
at most, but where one finalist's processes differ ten times as much as another's."""
FOUND = 0.95
"""The share of sweeps in which what is 2 % better is found, at least, but where processes differ by more than that: the
interval of what was counted must reach it."""
HARD = ("process 1 %", "heavy tails", "uneven processes")


def unmet(rows: Sequence[dict[str, Any]], methods: Sequence[dict[str, Any]]) -> list[str]:
    """What must hold and does not."""
    told = [
        f"{each['between_processes']}, search {each['searched']}, {each['finalists']} finalists, {each['processes']}"
        f" processes: leader covered {each['leader_covered']}, crowned {each['crowned_two_equal_ahead']}"
        for each in methods
        if each["leader_covered"] < LEADER_COVERED or each["crowned_two_equal_ahead"] > CROWNED
    ]
    for each in rows:
        findable = each["one_is_2_percent_better"] and each["regime"] not in HARD
        found, of = each["counts"].get("found", (0, 0))
        if findable and (not of or holds.share_interval(found, of)[1] < FOUND):
            told.append(f"{each['regime']}: found {found} of {of}")
        for name, (least, most) in LIMITS.items():
            part, whole = each["counts"].get(name, (0, 0))
            if not whole or not least <= part / whole <= most:
                told.append(f"{each['regime']}: {name} {part} of {whole}")
    return told


def main() -> None:
    """Run, print, and write JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sweeps", type=int, default=500, help="of each kind")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    args = parser.parse_args()
    when, started = datetime.now(UTC), time.monotonic()
    tallies: dict[tuple[str, bool], Tally] = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        todo = list(tasks(args.sweeps))
        for task, tally in zip(todo, pool.map(run, todo), strict=True):
            tallies.setdefault((task.regime, task.better), Tally()).merge(tally)
        methods = list(chain(*pool.map(finals_methods.rows, finals_methods.KINDS if args.sweeps else ())))
    found = [row(regime, better, tally) for (regime, better), tally in tallies.items()]
    holds.measured([each["regime"] for each in found], "sweep of", tuple(REGIMES))
    print("  ".join(f"{cell:>16}" for cell in HEAD), *map(line, found), sep="\n")
    if args.json is not None:
        document = {
            "command": command_line(),
            "when": when.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - started, 1),
            "jobs": args.jobs,
            "python": platform.python_version(),
            "sweeps": args.sweeps,
            "candidates": CANDIDATES,
            "processes": PROCESSES,
            "final_blocks": FINAL_BLOCKS,
            "crown_alpha": CROWN_ALPHA,
            "rows": found,
            "methods": methods,
        }
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    if args.hold:
        holds.require(unmet(found, methods))


if __name__ == "__main__":
    main()
