"""Checkouts of autotuner side by side: did anything that is measured get worse?

    python -m benchmarks.throughput.checkouts BEFORE [BETWEEN ...] [--trials N] [--rounds N] [--space SPACE]

All run in this interpreter, from their own folders, in turns; the last is this tree, `after`. Each round starts every
program, and sweeps the same random points in each: with an empty cache of builds, and again with a full one. A round's
ratio is of runs beside each other, so that a slow machine is slow for all. Results go to docs/results/checkouts.json,
or where --json says.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance

ROOT = Path(__file__).parent.parent.parent
RESULT = ROOT / "docs" / "results" / "checkouts.json"
HERE = "after"


Checks = dict[str, float]
"""Seconds of each check, by its code."""


class Checkout:
    """One of them, with a store and a cache of its own."""

    def __init__(self, folder: Path, scratch: Path, space: str) -> None:
        scratch.mkdir()
        self._folder, self._scratch, self._space = folder.resolve(), scratch, space

    def run(self, *arguments: str, cache: str = "shared", store: str = "shared") -> tuple[float, str]:
        """Seconds of `autotuner ARGUMENTS`, and what it wrote. Raises CalledProcessError when it fails."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self._folder), *sys.path[1:]]),
            "AUTOTUNER_CACHE": str(self._scratch / f"{cache}.cache"),
            "AUTOTUNER_STORE": f"sqlite:///{self._scratch / f'{store}.db'}",
        }
        command = [sys.executable, "-m", "autotuner", *arguments]
        started = time.perf_counter()
        done = subprocess.run(command, cwd=self._folder, env=environment, capture_output=True, text=True, check=True)
        return time.perf_counter() - started, done.stdout

    def environment(self, store: str) -> Any:
        """The device and the versions with which the first variant was judged."""
        found = json.loads(self.run("show", "0", "--report", store=store)[1])["environment"]
        return {"device": found["device"], **found["versions"]}

    def sweep(self, number: int, trials: int, cache: str, store: str) -> tuple[float, list[Checks]]:
        """Seconds of a sweep over random points, and of the checks of the gate on each variant that passed it."""
        words = ["tune", self._space, "--trials", str(trials), "--sampler", "random", "--seed", str(number), "--cold"]
        seconds, _ = self.run(*words, "--no-finals", cache=cache, store=store)
        judged = [json.loads(self.run("show", str(trial), "--json", store=store)[1]) for trial in range(trials)]
        reports = [each["outcome"]["gate"] for each in judged if each["outcome"]["gate"] is not None]
        passed = [report for report in reports if report["fault"] is None]
        return seconds, [{check["code"]: check["seconds"] for check in report["checks"]} for report in passed]


def turns(checkouts: Mapping[str, Checkout], draw: random.Random) -> list[tuple[str, Checkout]]:
    """All, in a drawn order."""
    order = list(checkouts.items())
    draw.shuffle(order)
    return order


def gate_costs(gates: Mapping[str, Sequence[Checks]]) -> dict[str, dict[str, float]]:
    """By what is counted and by checkout, the median seconds of the gate on a variant that passes: every check, and
    those alone that all have."""
    if not gates:
        return {}
    shared = set.intersection(*({code for checks in found for code in checks} for found in gates.values()))
    found = {
        "gate on a variant that passes": {name: [sum(each.values()) for each in of] for name, of in gates.items()},
        "the same, by the checks that all have": {
            name: [sum(seconds for code, seconds in each.items() if code in shared) for each in of]
            for name, of in gates.items()
        },
    }
    return {what: {name: statistics.median(each) for name, each in of.items()} for what, of in found.items()}


def measure(checkouts: Mapping[str, Checkout], rounds: int, trials: int) -> dict[str, dict[str, list[float]]]:
    """By what is measured and by checkout, a number of each round, in seconds."""
    draw, found = random.Random(1), defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    for number in range(rounds):
        gates: dict[str, list[Checks]] = {}
        for name, checkout in turns(checkouts, draw) if trials else ():
            cold, _ = checkout.sweep(number, trials, f"cold{number}", f"cold{number}")
            found["sweep, nothing built before"][name].append(cold)
        for name, checkout in turns(checkouts, draw) if trials else ():
            warm, gates[name] = checkout.sweep(number, trials, f"cold{number}", f"warm{number}")
            found["sweep, everything built before"][name].append(warm)
        for what, seconds in gate_costs(gates).items():
            for name, median in seconds.items():
                found[what][name].append(median)
        for name, checkout in turns(checkouts, draw):
            found["autotuner --help"][name].append(checkout.run("--help")[0])
            if trials:
                found["autotuner status"][name].append(checkout.run("status", store=f"warm{number}")[0])
        print(f"round {number + 1} of {rounds}", flush=True)
    return found


def row(seconds: Mapping[str, Sequence[float]], before: str) -> dict[str, Any]:
    """By checkout, the median over the rounds, and of the others the ratios to the first: median, least and most."""
    found: dict[str, Any] = {before: {"s": statistics.median(seconds[before])}}
    for name in seconds.keys() - {before}:
        ratios = sorted(after / earlier for earlier, after in zip(seconds[before], seconds[name], strict=True))
        spread = {"ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
        found[name] = {"s": statistics.median(seconds[name]), **spread}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Checkouts side by side.")
    parser.add_argument("before", type=Path, nargs="+", help="the other checkouts, the oldest first")
    parser.add_argument("--trials", type=int, default=12, help="of a sweep; 0: start both programs, and sweep nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--space", default="sdpa_cpu_small")
    parser.add_argument("--json", type=Path, default=RESULT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkouts = {}
        for name, place in (*((each.name, each) for each in options.before), (HERE, ROOT)):
            checkouts[name] = Checkout(place, Path(folder) / name, options.space)
        found = measure(checkouts, options.rounds, options.trials)
        where = checkouts[HERE].environment("cold0") if options.trials else None
    first = options.before[0].name
    rows = {what: row(seconds, first) for what, seconds in found.items()}
    made = provenance([*options.before, options.json])
    document = {**made, "environment": where, "rounds": options.rounds, "trials": options.trials, "rows": rows}
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    for what, by_name in rows.items():
        print(what)
        for name, each in by_name.items():
            of_first = f"  {each['ratio']:.3f} ({each['least']:.3f} to {each['most']:.3f})" if "ratio" in each else ""
            print(f"    {name:12}{each['s']:9.3f} s{of_first}")


if __name__ == "__main__":
    main()
