"""A PostgreSQL server that is restarted at random moments of sweeps on new databases ends no worker and loses nothing.

    python -m benchmarks.driver.restarts [--restarts 20] [--sweeps 5] [--trials 60] [--json docs/results/restarts.json]

Each sweep begins on an empty database. The server is stopped as a crash stops it (`pg_ctl -m immediate`), the first
time within ten seconds after the worker serves its device, so that the study is new, and started again within 10 s.
The worker itself is started while the server is down.
Processes, builds and the gate are real, times are drawn (tests/plugins/drawn_cpu).

Exit code 1 where a worker ended, a trial was lost, judged twice or left running, where a worker did not say that the
store had gone and that it was back, or where sweeps ended before the server was restarted so often.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import holds
from benchmarks.driver.restarted import Restarted, restarted_sweep
from benchmarks.provenance import provenance
from tests.helpers import postgresql


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--restarts", type=int, default=20, help="of the server, over all sweeps")
    parser.add_argument("--sweeps", type=int, default=5, help="each on a database of its own")
    parser.add_argument("--trials", type=int, default=60, help="of each sweep")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    draw, started = random.Random(options.seed), time.monotonic()
    found: list[Restarted] = []
    with postgresql.running() as server:
        for number in range(options.sweeps):
            restarts = (options.restarts * (number + 1)) // options.sweeps - sum(each.restarts for each in found)
            with tempfile.TemporaryDirectory(prefix="autotuner-restarts-") as folder:
                try:
                    found.append(restarted_sweep(Path(folder), server, restarts, options.trials, draw))
                except AssertionError as error:
                    holds.require([str(error)])
                    raise
            print(f"sweep {number + 1}: {found[-1]}", flush=True)
    document: dict[str, Any] = {
        **provenance(),
        "seconds": round(time.monotonic() - started, 1),
        "restarts": sum(each.restarts for each in found),
        "workers_ended": 0,
        "trials_lost": 0,
        "sweeps": [each._asdict() for each in found],
    }
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    holds.require([] if document["restarts"] >= options.restarts else ["sweeps ended before the server was restarted"])


if __name__ == "__main__":
    main()
