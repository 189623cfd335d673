"""A sweep by a worker to which something happens at random, every 90 s on average, finds what an undisturbed one finds.

    python -m benchmarks.driver.chaos [--minutes 60] [--every 90] [--lock 120] [--postgresql] [--json PATH] [--hold]

What happens: kill -9 of the worker, its fork server, the device's process or a compiler; SIGSTOP; SIGTERM and SIGUSR1;
the store locked by another program, the first time for two minutes, or its server restarted. The worker is started
again each time it has gone. Then the same sweep runs undisturbed to the same number of trials. Processes, builds and
the gate are real. Times are drawn (tests/plugins/drawn_cpu): it is known which of the two winners is faster, and a busy
machine makes the hour poorer in trials, but spoils nothing.

A strike at the worker costs its start, the calibration and the trials in flight: half a minute on two quiet cores. With
`--every` near that hardly anything is judged, and a trial that is in flight in three workers that were killed counts as
crashed. So a short run strikes as seldom as a long one: `--minutes 20` has some 13 strikes.

Exit code 1 where a trial was lost, judged twice or left running, a process was left, the worker took more than ten
seconds to go, or, with --hold, where the winners differ by more than the tie band, nothing was measured, or fewer
trials were judged than there were strikes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from autotuner.jobs.outlook import RESTING
from autotuner.race.tie import tie_band
from autotuner.store import Store, queries, sweeps
from autotuner.store.records import SweepRecord
from autotuner.tuning.finals import standings
from autotuner.values.variant import Variant
from benchmarks import holds
from benchmarks.provenance import provenance
from tests.helpers import postgresql
from tests.helpers.chaos import DRAWN, GRACE_S, Chaos, lay_out_drawn, recorded, require_whole

LOOK_S = 2.0
"""Seconds between two looks at the worker."""


def sweep_of(store: str, number: int) -> SweepRecord:
    """A sweep as it is now."""
    with Store.open(store, create=False) as opened:
        return sweeps.one(opened, number)


def true_us(variant: Variant) -> float:
    """What is true of a variant of the space that was laid out."""
    from drawn_cpu import microseconds

    return microseconds(variant)


def swept(
    chaos: Chaos, store: str, trials: int, minutes: float, patience: float, every_s: float | None
) -> dict[str, Any]:
    """Runs a sweep to its end; with `every_s` something happens so often on average until its minutes are over."""
    budget = ["--minutes", str(minutes)] if every_s is not None else []
    asked = ["space.toml", "--trials", str(trials), *budget, "--no-finals", "--cold", "--patience", str(patience)]
    number = json.loads(chaos.command("submit", *asked, "--json"))["number"]
    draw, started = random.Random(7), time.monotonic()
    due = started + (draw.expovariate(1 / every_s) if every_s is not None else math.inf)
    before: list[dict[int, tuple[str, str]]] = []
    while sweep_of(store, number).state not in RESTING:
        chaos.see_to_the_worker()
        time.sleep(LOOK_S)
        if time.monotonic() < due:
            continue
        did = chaos.strike()
        print(f"{time.monotonic() - started:6.0f} s: {did or 'nothing to strike'}", flush=True)
        due = time.monotonic() + (draw.expovariate(1 / every_s) if did and every_s is not None else 1.0)
        with Store.open(store, create=False) as opened:
            study = sweep_of(store, number).study
            before += [recorded(opened, study)] if study is not None and _is_there(opened) else []
    chaos.end_worker()
    chaos.wait_for_the_rest()
    with Store.open(store, create=False) as opened:
        sweep = sweep_of(store, number)
        judged = require_whole(opened, sweep, before)
        study = str(sweep.study)
        best = standings.best(opened, study)
        return {
            "judged": judged,
            "recorded": len(recorded(opened, study)),
            "disturbed": len(queries.disturbed(opened, study)),
            "worked_s": round(sweep.spent_s, 1),
            "wall_s": round(time.monotonic() - started, 1),
            "winner": None if best is None else best.outcome.variant.model_dump(mode="json"),
            "objective": None if best is None else best.outcome.objective,
            "true_us": None if best is None else round(true_us(best.outcome.variant), 1),
            "tie": tie_band(queries.aa_heats(opened, study), "mean"),
        }


def _is_there(store: Store) -> bool:
    return bool(queries.records(store))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of work that is struck")
    parser.add_argument("--every", type=float, default=90.0, help="seconds between two strikes, on average; 60 or more")
    parser.add_argument("--lock", type=float, default=120.0, help="seconds that the store is locked the first time")
    parser.add_argument("--trials", type=int, default=10_000, help="no more than the space has points")
    parser.add_argument("--patience", type=float, default=1.0, help="minutes that a calm machine is waited for")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--postgresql", action="store_true", help="the store is on a server, which is restarted")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autotuner-chaos-")))
        lay_out_drawn(folder)
        server = stack.enter_context(postgresql.running()) if options.postgresql else None
        places = [server.url() if server is not None else str(folder / name) for name in ("struck.db", "calm.db")]
        chaos = Chaos(folder, places[0], options.seed, server, options.lock, DRAWN)
        try:
            struck = swept(chaos, places[0], options.trials, options.minutes, options.patience, options.every)
            calm = swept(
                Chaos(folder, places[1], 0, devices=DRAWN),
                places[1],
                max(1, struck["judged"]),
                0,
                options.patience,
                None,
            )
        except AssertionError as error:
            print((folder / "worker.log").read_text()[-4000:], file=sys.stderr)
            holds.require([str(error)])
            raise
        ratio = None
        if struck["true_us"] is not None and calm["true_us"] is not None:
            ratio = struck["true_us"] / calm["true_us"]
    tie = max(struck["tie"], calm["tie"])
    document = {
        **provenance(),
        "engine": "postgresql" if options.postgresql else "sqlite",
        "minutes": options.minutes,
        "every_s": options.every,
        "first_lock_s": options.lock if chaos.done["lock"] else None,
        "strikes": dict(sorted(chaos.done.items())),
        "slowest_end_s": round(chaos.slowest_end_s, 2),
        "peak_mib": round(chaos.peak[0], 1),
        "peak_files": chaos.peak[1],
        "struck": struck,
        "undisturbed": calm,
        "ratio_of_the_winners": ratio,
        "tie": tie,
    }
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    unmet = [] if chaos.slowest_end_s <= GRACE_S else [f"the worker took {chaos.slowest_end_s:.1f} s to go"]
    if options.hold:
        unmet += _unmet(ratio, tie)
        if struck["judged"] < sum(chaos.done.values()):
            unmet.append(
                f"{struck['judged']} trials were judged beside {sum(chaos.done.values())} strikes: strike less often"
            )
    holds.require(unmet)


def _unmet(ratio: float | None, tie: float) -> list[str]:
    if ratio is None:
        return ["nothing was measured: there are no winners to compare"]
    return [] if abs(ratio - 1) <= tie else [f"the winners differ by {ratio - 1:+.1%}, and {tie:.1%} is a tie"]


if __name__ == "__main__":
    main()
