"""Bad files, bad command lines and damaged stores by the thousand: whatever a command is given, it ends with exit code
0, 1 or 2 and one line, within 10 s of CPU time and 1 GB.

    python -m benchmarks.cli.hostile [--cases 100000] [--jobs 1] [--json docs/results/hostile.json]

Each process serves a thousand cases, so that what one leaves behind meets the next. Exit code 1 where a case ended
otherwise; its recipe is in the result, and tests/helpers/hostile.py makes the case of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks import holds
from benchmarks.provenance import ROOT, command_line, provenance
from tests.helpers.hostile import Recipe, faults, made, recipes, run

AT_ONCE = 1000
"""Cases of a process."""
KEPT = 20
"""Failures that the result shows, at most."""
PATIENCE_S = 1800
"""A process takes half a minute. One that takes longer than this waits for something that never comes."""


def serve(number: int, cases: int) -> dict[str, Any]:
    """What became of that many cases in this process; `number` is the seed."""
    ends, failures, slowest, most = Counter[str](), list[dict[str, Any]](), 0.0, 0

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(recipes())
    def each(recipe: Recipe) -> None:
        nonlocal slowest, most
        ended = run(made(recipe))
        ends[f"{recipe.kind}: exit code {ended.code}"] += 1
        slowest, most = max(slowest, ended.cpu_s), max(most, ended.taken)
        if found := faults(ended):
            failures.append({"recipe": recipe, "faults": found, "error": ended.err[-2000:]})

    each()
    return {"ends": ends, "failures": failures[:KEPT], "failed": len(failures), "cpu_s": slowest, "bytes": most}


def served(number: int, cases: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--serve", str(number), "--cases", str(cases)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
        error = done.stderr[-2000:] if done.returncode else None
    except subprocess.TimeoutExpired:
        error = f"process {number} did not end within {PATIENCE_S} s"
    if error is not None:
        print(f"process {number}: {error}", flush=True)
        return {"ends": {}, "failures": [{"error": error}], "failed": 1, "cpu_s": 0.0, "bytes": 0}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"process {number}: {sum(found['ends'].values())} cases, {found['failed']} failed", flush=True)
    for each in unlike(found["failures"]):
        print(json.dumps(each), flush=True)
    return found


def unlike(failures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of those that ended with the same words."""
    return list({"".join(each["error"].strip().splitlines()[-1:]): each for each in reversed(failures)}.values())[::-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--json", type=Path, metavar="PATH")
    parser.add_argument("--serve", type=int, metavar="SEED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        print(json.dumps(serve(options.serve, options.cases)))
        return
    started = time.monotonic()
    counts = [min(AT_ONCE, options.cases - first) for first in range(0, options.cases, AT_ONCE)]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(served, range(len(counts)), counts))
    ends = sum((Counter(each["ends"]) for each in found), Counter[str]())
    document = {
        **provenance(),
        "command": command_line(),
        "seconds": round(time.monotonic() - started, 1),
        "cases": ends.total(),
        "processes": len(found),
        "ends": dict(sorted(ends.items())),
        "most_cpu_s": round(max(each["cpu_s"] for each in found), 2),
        "most_bytes": max(each["bytes"] for each in found),
        "failed": sum(each["failed"] for each in found),
        "failures": unlike([failure for each in found for failure in each["failures"]])[:KEPT],
    }
    print(json.dumps({name: value for name, value in document.items() if name != "failures"}, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    unmet = [f"{document['failed']} cases ended otherwise"] if document["failed"] else []
    holds.require(unmet + ([] if ends.total() >= 0.9 * options.cases else ["too few cases were drawn"]))


if __name__ == "__main__":
    main()
