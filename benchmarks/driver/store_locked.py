"""Another program has the store to itself for two minutes while a worker works: nothing is lost or judged twice.

    python -m benchmarks.driver.store_locked [--seconds 120] [--trials 40] [--json docs/results/store_locked.json]

The other program holds BEGIN EXCLUSIVE on the SQLite file. Processes, builds and the gate are real, times are drawn
(tests/plugins/drawn_cpu). Exit code 1 where a trial was lost, judged twice or left running, where another variant was
judged than in the same sweep undisturbed, or where the lock met nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.jobs.outlook import RESTING
from autotuner.store import Store, queries, sweeps
from benchmarks import holds
from benchmarks.provenance import provenance
from tests.helpers.chaos import DRAWN, Chaos, lay_out_drawn, recorded, require_whole, sweep_of

BEFORE = 8
"""Trials that are judged before the store is locked."""
LOOK_S = 1.0


class Done(NamedTuple):
    """A sweep after its end."""

    judged: list[str]
    """Digests of variants, in the order of the trials."""
    found: dict[str, Any]


def swept(folder: Path, name: str, wanted: int, lock_s: float | None) -> Done:
    """Runs a sweep to its end, under a lock where there is one. Raises AssertionError where it is not whole."""
    place = str(folder / name)
    chaos = Chaos(folder, place, 0, devices=DRAWN)
    asked = ["space.toml", "--trials", str(wanted), "--no-finals", "--cold", "--sampler", "random"]
    number = json.loads(chaos.command("submit", *asked, "--json"))["number"]
    before: dict[int, tuple[str, str]] = {}
    locked: tuple[datetime, datetime] | None = None
    while (sweep := sweep_of(place, number)).state not in RESTING:
        chaos.see_to_the_worker()
        time.sleep(LOOK_S)
        if lock_s is not None and locked is None and _judged(place, number) >= BEFORE:
            with Store.open(place, create=False) as store:
                before = recorded(store, str(sweep.study))
            locked = chaos.lock(lock_s)
    chaos.end_worker()
    chaos.wait_for_the_rest()
    with Store.open(place, create=False) as store:
        sweep = sweep_of(place, number)
        study = str(sweep.study)
        judged = require_whole(store, sweep, [before])
        times = [each.recorded_at for each in queries.listed(store, study)]
        variants = [variant for _, (variant, _) in sorted(recorded(store, study).items())]
        sessions = len(queries.sessions(store, study))
    found: dict[str, Any] = {"judged": judged, "recorded": len(times), "sessions": sessions}
    if locked is not None:
        since, until = locked
        found |= {
            "recorded_before": len(before),
            "recorded_in_it": sum(since < at < until for at in times),
            "seconds_from_its_end_to_the_next": round(
                min((at - until).total_seconds() for at in times if at > until), 2
            ),
        }
    return Done(variants, found)


def _judged(place: str, number: int) -> int:
    with Store.open(place, create=False) as store:
        return sum(event.kind == "judged" for event in sweeps.events(store, number))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="that the store is locked")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-locked-") as name:
        folder = Path(name)
        lay_out_drawn(folder)
        try:
            struck = swept(folder, "locked.db", options.trials, options.seconds)
            calm = swept(folder, "calm.db", options.trials, None)
        except AssertionError as error:
            holds.require([str(error)])
            raise
    document = {
        **provenance(),
        "seconds": options.seconds,
        "locked": struck.found,
        "undisturbed": calm.found,
        "the_same_variants": set(struck.judged) == set(calm.judged),
    }
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    unmet = [] if "recorded_in_it" in struck.found else ["the sweep ended before the store was locked"]
    if struck.found.get("recorded_in_it"):
        unmet.append("trials were recorded while the store was locked: it was not")
    if not document["the_same_variants"]:
        unmet.append("other variants were judged than without the lock")
    holds.require(unmet)


if __name__ == "__main__":
    main()
