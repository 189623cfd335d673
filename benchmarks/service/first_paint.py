"""How soon a browser paints the pages of a large study.

    python -m benchmarks.service.first_paint [--trials 10000] [--json docs/results/service_first_paint.json]

The study is made up (benchmarks/service/made_up.py). `cold` is the first request to a server that has just said that it
serves, `warm` the fifth. First contentful paint is the browser's own figure, from the start of the navigation.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from autotuner.store import Store
from benchmarks.provenance import provenance
from benchmarks.service.made_up import spread_times, write
from tests.helpers.browser import browser, served

PAGES = {
    "overview": "",
    "why rejected": "/rejects",
    "variants": "/variants",
    "leaderboard": "/leaderboard",
    "problems": "/problems",
    "coverage": "/coverage",
    "timeline": "/timeline",
    "costs": "/costs",
}
PAINTED = "performance.getEntriesByName('first-contentful-paint').map((each) => each.startTime)[0]"


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
                    times.append(painted(page))
                    context.close()
                found[name] = {"cold_ms": round(times[0], 1), "warm_ms": round(times[-1], 1)}
    return found


def painted(page: Page) -> float:
    """When it was painted. It is asked for: the page's own policy lets nobody wait in it by a string of JavaScript."""
    while (at := page.evaluate(PAINTED)) is None:
        page.wait_for_timeout(5)
    return float(at)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.first_paint", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-first-paint-") as folder:
        path = Path(folder) / "studies.db"
        with Store.open(str(path)) as store:
            study = write(store, options.trials)
        spread_times(path, study)
        found: dict[str, Any] = {"trials": options.trials, "cpus": os.cpu_count(), "load_before": os.getloadavg()[0]}
        found["first_paint"] = paints(path, study)
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps({**provenance(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
