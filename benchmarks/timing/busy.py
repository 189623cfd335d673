"""What a busy machine costs an answer: the same command on a quiet machine, and beside as many busy loops as CPUs.

    python -m benchmarks.timing.busy [--problem "(1,4,128,64) float32 full"] [--runs 20] [--seed N]
        [--minutes 3] [--json PATH] [--hold]

Each run is `autotuner tune --problem P --minutes M --cold` in a store of its own, with another seed. The truth of each
winner is measured at the end, on the quiet machine: its ratio to the baseline in three fresh processes. Nothing else
may run here.

What must hold, of N quiet and N busy runs: the winner's interval covers the quiet ratio in 17 of 20 of each; a crown
whose interval misses it by more than 5 % in no more than 2 of 20; each run ends within its minutes and 15 seconds, with
best.json or a sentence; and there is a winner in all of the quiet and in 8 of 20 busy ones.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from autotuner.store import Store
from autotuner.tuning import again
from autotuner.tuning.finals import standings
from autotuner.values.ratio import Speedup
from benchmarks import holds
from benchmarks.provenance import measured_on
from benchmarks.timing.disturbance import disturbed

Document = dict[str, Any]
RUNS = 20
COVERED, MISSED, WINNERS = 17 / 20, 2 / 20, 8 / 20
"""Shares of the runs: that must cover, that may miss, and of the busy ones that must have a winner."""
MISS, LATE_S = 0.05, 15.0
"""By how much a crown's interval may miss the truth, relative; and seconds that a run may take beyond its minutes."""
PROCESSES = 3
"""Of a truth."""
LONG_S = 1e6
"""Seconds of a disturbance that is not switched off."""


class Run(NamedTuple):
    """One command, and what it left."""

    is_busy: bool
    seconds: float
    judged: int
    sentence: str
    """The last line that it printed."""
    trial: int | None
    """The one to use; None: there is none."""
    speedup: Speedup | None
    is_confirmed: bool
    is_crowned: bool
    truth: float | None = None
    """t_baseline / t_variant on the quiet machine."""

    @property
    def covers(self) -> bool:
        """Whether the interval has the truth."""
        return self.speedup is not None and self.truth is not None and self.missed_by == 0

    @property
    def missed_by(self) -> float:
        """How far the truth is outside of the interval, relative."""
        if self.speedup is None or self.truth is None:
            return 0.0
        return max(0.0, self.speedup.low / self.truth - 1, self.truth / self.speedup.high - 1)


def tuned(problem: str, minutes: float, seed: int, is_busy: bool, folder: Path) -> Run:
    """One run of the command."""
    words = [sys.executable, "-m", "autotuner", "tune", "sdpa_cpu", "--problem", problem, "--minutes", str(minutes)]
    words += ["--trials", "100000", "--cold", "--seed", str(seed)]
    words += ["--store", str(folder / "studies.db"), "--out", str(folder / "best.json")]
    with disturbed("cpu", LONG_S, 0.0) if is_busy else nullcontext():
        began = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True)
        seconds = time.monotonic() - began
    said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
    with Store.open(str(folder / "studies.db")) as store:
        studies = standings.studies(store)
        best = standings.best(store, studies[0].name) if studies else None
        judged = studies[0].judged if studies else 0
    if best is None:
        return Run(is_busy, seconds, judged, said[-1], None, None, False, False)
    quoted = best.confirmed or best.entry.speedup
    number, confirmed = best.entry.number, best.confirmed is not None
    return Run(is_busy, seconds, judged, said[-1], number, quoted, confirmed, best.entry.crowned)


def with_truth(run: Run, folder: Path) -> Run:
    """The run with what its winner is worth now."""
    if run.trial is None:
        return run
    with Store.open(str(folder / "studies.db")) as store:
        races = [again.race(store, None, itself=False, trial=run.trial) for _ in range(PROCESSES)]
    return run._replace(truth=math.exp(fmean(math.log(race.speedup.mid) for race in races)))


def summed(runs: list[Run]) -> dict[str, Any]:
    """The runs of one kind in figures."""
    winners = [run for run in runs if run.trial is not None]
    widths = [
        run.speedup.high / run.speedup.low - 1 for run in winners if run.speedup is not None and run.speedup.bounded
    ]
    return {
        "runs": len(runs),
        "winners": len(winners),
        "confirmed": sum(run.is_confirmed for run in runs),
        "crowned": sum(run.is_crowned for run in runs),
        "covered": sum(run.covers for run in winners),
        "crowns_missed": sum(run.is_crowned and run.missed_by > MISS for run in runs),
        "seconds": [min(run.seconds for run in runs), max(run.seconds for run in runs)],
        "judged": [min(run.judged for run in runs), max(run.judged for run in runs)],
        "widths": [min(widths, default=None), max(widths, default=None)],
    }


def merged(documents: Sequence[Document]) -> Document:
    """One document of several."""
    return {**documents[-1], **of_runs([run for document in documents for run in document["runs"]])}


def of_runs(rows: list[Document]) -> Document:
    """The runs, and what those of each kind come to."""
    runs = [Run(**{**row, "speedup": row["speedup"] and Speedup.model_validate(row["speedup"])}) for row in rows]
    kinds = {name: [run for run in runs if run.is_busy == (name == "busy")] for name in ("quiet", "busy")}
    return {**{name: summed(some) for name, some in kinds.items() if some}, "runs": rows}


def unmet(document: Document) -> list[str]:
    """What does not hold of it."""
    said = []
    for name in ("quiet", "busy"):
        found = document[name]
        if found["covered"] < COVERED * found["winners"]:
            said.append(f"{name}: {found['covered']} of {found['winners']} intervals have the truth")
        if found["crowns_missed"] > MISSED * found["runs"]:
            said.append(f"{name}: {found['crowns_missed']} crowns miss it by more than {MISS:.0%}")
        if found["seconds"][1] > 60 * document["minutes"] + LATE_S:
            said.append(f"{name}: a run of {document['minutes']:g} minutes took {found['seconds'][1]:.0f} s")
        if found["winners"] < (1.0 if name == "quiet" else WINNERS) * found["runs"]:
            said.append(f"{name}: {found['winners']} of {found['runs']} have a winner")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--problem", default="(1,4,128,64) float32 full", help="of attention, on the CPU")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first run of each kind")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each run")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-busy-") as folder:
        runs: list[Run] = []
        for place in range(2 * options.runs):
            here = Path(folder) / str(place)
            here.mkdir()
            runs.append(tuned(options.problem, options.minutes, options.seed + place // 2, place % 2 == 1, here))
            print(json.dumps(runs[-1]._asdict(), default=vars), flush=True)
        runs = [with_truth(run, Path(folder) / str(place)) for place, run in enumerate(runs)]
    rows = [run._asdict() | {"speedup": run.speedup and run.speedup.model_dump(mode="json")} for run in runs]
    document = {
        **measured_on("cpu"),
        "problem": options.problem,
        "minutes": options.minutes,
        **of_runs(rows),
    }
    print(json.dumps({name: document[name] for name in ("quiet", "busy")}, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(document))


if __name__ == "__main__":
    main()
