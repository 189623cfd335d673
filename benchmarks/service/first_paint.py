"""How soon a browser paints the pages of a large study, and what readers cost a sweep.

    python -m benchmarks.service.first_paint [--trials 10000] [--json docs/results/service_first_paint.json]
    python -m benchmarks.service.first_paint --readers 8 --seconds 20

The study is made up (benchmarks/service/made_up.py). `cold` is the first request to a server that has just started,
`warm` the fifth. First contentful paint is the browser's own figure, from the start of the navigation. With --readers a
made-up sweep records trials beside readers at two requests a second each, and without them: what a record takes, and
lock errors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from autotuner.store import Store
from autotuner.values.errors import StoreError
from benchmarks.provenance import provenance
from benchmarks.service.made_up import MadeUp, spread_times, write
from tests.helpers.browser import browser, served

PAGES = {"overview": "", "why rejected": "/rejects", "variants": "/variants", "leaderboard": "/leaderboard"}
PAINTED = "performance.getEntriesByName('first-contentful-paint').map((each) => each.startTime)[0]"
A_SECOND = 2.0
"""Requests a second of one reader."""
RECORDS = 0.1
"""Seconds between two trials of the made-up sweep."""


def paints(path: Path, study: str) -> dict[str, Any]:
    """Milliseconds to the first contentful paint of each page, cold and warm."""
    found: dict[str, Any] = {}
    with browser() as chromium:
        for name, tab in PAGES.items():
            with served(path, "--read-only") as server:
                times = []
                for _ in range(5):
                    context = chromium.new_context()
                    page = context.new_page()
                    page.goto(f"{server.url}/studies/{study}{tab}")
                    page.wait_for_function(f"{PAINTED} !== undefined")
                    times.append(page.evaluate(PAINTED))
                    context.close()
                found[name] = {"cold_ms": round(times[0], 1), "warm_ms": round(times[-1], 1)}
    return found


def beside(path: Path, study: str, readers: int, seconds: float) -> dict[str, Any]:
    """What recording a trial takes, alone and beside readers; milliseconds."""
    made = MadeUp(seed=2, name="beside readers")
    with Store.open(str(path)) as store:
        store.ensure_study(made.record)
        session = store.start_session(made.record.name, made.calibration(), {})
        outcomes = enumerate(made.outcomes(int(2 * seconds / RECORDS)))

        def record(until: float) -> tuple[list[float], int]:
            times, locked = [], 0
            while time.monotonic() < until:
                number, outcome = next(outcomes)
                began = time.perf_counter()
                try:
                    store.record(made.record.name, session, number, outcome)
                except StoreError:
                    locked += 1
                times.append(1e3 * (time.perf_counter() - began))
                time.sleep(RECORDS)
            return times, locked

        quiet, _ = record(time.monotonic() + seconds)
        with served(path, "--read-only") as server:
            stop, asked = threading.Event(), [0] * readers
            urls = [f"{server.url}/studies/{name}{tab}" for name in (study, made.record.name) for tab in PAGES.values()]

            def read(reader: int) -> None:
                while not stop.wait(1 / A_SECOND):
                    with urllib.request.urlopen(urls[asked[reader] % len(urls)]) as answer:
                        answer.read()
                    asked[reader] += 1

            threads = [threading.Thread(target=read, args=(each,)) for each in range(readers)]
            for url in urls:  # a sweep has run for a while when somebody looks
                with urllib.request.urlopen(url) as answer:
                    answer.read()
            for thread in threads:
                thread.start()
            busy, locked = record(time.monotonic() + seconds)
            stop.set()
            for thread in threads:
                thread.join()
    return {
        "readers": readers,
        "requests": sum(asked),
        "lock_errors": locked,
        "quiet_ms": round(statistics.median(quiet), 2),
        "beside_readers_ms": round(statistics.median(busy), 2),
        "beside_readers_p95_ms": round(sorted(busy)[int(0.95 * len(busy))], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.first_paint", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--readers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-first-paint-") as folder:
        path = Path(folder) / "studies.db"
        with Store.open(str(path)) as store:
            study = write(store, options.trials)
        spread_times(path, study)
        found: dict[str, Any] = {"trials": options.trials, "cpus": os.cpu_count(), "load_before": os.getloadavg()[0]}
        found["first_paint"] = paints(path, study)
        if options.readers:
            found["beside"] = beside(path, study, options.readers, options.seconds)
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps({**provenance(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
