"""How soon a browser paints the pages of a large study.

    python -m benchmarks.service.first_paint [--trials 10000] [--json docs/results/service_first_paint.json] [--hold]

Two studies are made up (benchmarks/service/made_up.py), each with that number of trials. `cold` is the first request to
a server that has just said that it serves, `warm` the fifth. First contentful paint is the browser's own figure, from
the start of the navigation. `bytes` is what a page with all that it loads sends over the wire, packed, and must stay
below LIMIT_BYTES. With --hold it fails where a page takes longer than LIMIT_MS, cold or warm, or is larger.
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
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.service.made_up import spread_times, write
from tests.helpers.browser import browser, served

LIMIT_MS = 1000.0
"""Milliseconds in which the first of a page must be painted."""
LIMIT_BYTES = 200 * 1024
PAGES = {
    "overview": "/studies/{study}",
    "why rejected": "/studies/{study}/rejects",
    "variants": "/studies/{study}/variants",
    "leaderboard": "/studies/{study}/leaderboard",
    "problems": "/studies/{study}/problems",
    "costs": "/studies/{study}/costs",
    "beliefs": "/studies/{study}/beliefs",
    "trial": "/studies/{study}/trials/3",
    "compare": "/compare?a={study}&b={other}",
    "queue": "/queue",
    "studies": "/",
}
PAINTED = "performance.getEntriesByName('first-contentful-paint').map((each) => each.startTime)[0]"

SENT = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
.reduce((sum, each) => sum + each.transferSize, 0)"""


def paints(path: Path, study: str, other: str) -> dict[str, dict[str, float]]:
    """Milliseconds to the first contentful paint of each page, cold and warm, and what it sends."""
    found: dict[str, dict[str, float]] = {}
    with browser() as chromium:
        for name, address in PAGES.items():
            with served(path, "--read-only") as server:
                times = []
                for _ in range(5):
                    context = chromium.new_context()
                    page = context.new_page()
                    page.goto(server.url + address.format(study=study, other=other))
                    times.append(painted(page))
                    page.wait_for_load_state("networkidle")
                    sent = page.evaluate(SENT)
                    context.close()
                found[name] = {"cold_ms": round(times[0], 1), "warm_ms": round(times[-1], 1), "bytes": sent}
    return found


def unmet(found: dict[str, dict[str, float]]) -> list[str]:
    """The pages that take too long."""
    return [
        f"{name}: {kind.removesuffix('_ms')} {took:.0f} ms, above {LIMIT_MS:.0f}"
        for name, times in found.items()
        for kind, took in times.items()
        if kind.endswith("_ms") and took >= LIMIT_MS
    ] + [f"{name}: {times['bytes']} bytes" for name, times in found.items() if times["bytes"] > LIMIT_BYTES]


def painted(page: Page) -> float:
    """When it was painted. It is asked for: the page's own policy lets nobody wait in it by a string of JavaScript."""
    while (at := page.evaluate(PAINTED)) is None:
        page.wait_for_timeout(5)
    return float(at)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.first_paint", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-first-paint-") as folder:
        path = Path(folder) / "studies.db"
        with Store.open(str(path)) as store:
            other = write(store, options.trials, seed=1, name="NVIDIA L4 (made up)")
            study = write(store, options.trials)
        for each in (other, study):
            spread_times(path, each)
        found: dict[str, Any] = {"trials": options.trials, "cpus": os.cpu_count(), "load_before": os.getloadavg()[0]}
        found["first_paint"] = paints(path, study, other)
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps({**provenance(), **found}, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(found["first_paint"]))


if __name__ == "__main__":
    main()
