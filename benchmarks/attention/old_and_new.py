"""Times the kernels of two checkouts side by side, on this GPU: what a change of the kernels costs.

    python -m benchmarks.attention.old_and_new OLD [--impl mma ...] [--rounds 31] [--seconds S] [--json F] [--hold]

OLD is a checkout (`git archive COMMIT | tar x -C OLD`), named by COMMIT. The points are those that kept results call
the fastest of an implementation at a problem, as first points are drawn from them. Each checkout builds them in a
process of its own and captures two graphs of forwards of each, warm and cold; what is the same program is not timed. In
each round all graphs of both are replayed in random order. A speed is the median of old over that of new, the geometric
mean over graphs; `apart` is by how much the graphs of one side differ. No row begins after S seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks import holds
from benchmarks.provenance import ROOT, command_line
from benchmarks.search import first_points

LEAST = 0.99


class Side:
    """The process of a checkout."""

    def __init__(self, checkout: Path, points: Sequence[dict[str, Any]]) -> None:
        self._cache = tempfile.TemporaryDirectory(prefix="side_")
        paths = os.pathsep.join([str(checkout), *filter(None, sys.path[1:])])
        around = {**os.environ, "PYTHONPATH": paths, "AUTOTUNER_CACHE": self._cache.name}
        source = Path(__file__).with_name("one_side.py").read_text()
        self._process = subprocess.Popen(
            [sys.executable, "-c", source],
            cwd=checkout,
            env=around,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(json.dumps(points))

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """What it says next."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline() or '"its process has ended"')

    def asked(self, line: str) -> Any:
        self._say(line)
        return self.answer()

    def close(self) -> None:
        self._process.communicate()
        self._cache.cleanup()


def points(impls: Sequence[str]) -> list[dict[str, Any]]:
    """Those that kept results call the fastest, of these implementations where some are named; each once."""
    found = []
    for kept in first_points.kept():
        impl = kept.point["IMPL"]
        if kept.kind == "cuda" and kept.problem.op == "sdpa" and impl in (impls or [impl]):
            parameters = {name: value for name, value in kept.point.items() if name != "IMPL"}
            found.append({"problem": str(kept.problem), "impl": impl, "parameters": parameters})
    return [each for place, each in enumerate(found) if each not in found[:place]]


def raced(sides: Sequence[Side], number: int, rounds: int, draw: random.Random) -> dict[str, Any] | str:
    """The figures of a point, or why there are none."""
    found: dict[str, Any] = {}
    for state in ("warm", "cold"):
        totals = [side.asked(f"{state} {number}") for side in sides]
        if reason := next((each for each in totals if isinstance(each, str)), None):
            return reason
        found["same_sum"] = totals[0] == totals[1]
        graphs = [(place, graph) for place in range(len(sides)) for graph in range(2)]
        taken: dict[tuple[int, int], list[float]] = {each: [] for each in graphs}
        for _ in range(rounds):
            for place, graph in draw.sample(graphs, len(graphs)):
                taken[place, graph].append(sides[place].asked(f"time {graph}"))
        logs = {each: math.log(median(times)) for each, times in taken.items()}
        old, new = (fmean(logs[place, graph] for graph in range(2)) for place in range(len(sides)))
        apart = max(abs(logs[place, 0] - logs[place, 1]) for place in range(len(sides)))
        found[state] = {"us": [math.exp(old), math.exp(new)], "speed": math.exp(old - new), "apart": math.expm1(apart)}
    return found


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means over the rows, and how many are at least LEAST, or below it by no more than graphs differ."""
    found: dict[str, Any] = {}
    for state in ("warm", "cold") if rows else ():
        speeds = [row[state]["speed"] for row in rows]
        below = [row for row in rows if row[state]["speed"] * (1 + row[state]["apart"]) < LEAST]
        found[state] = {
            "speed": math.exp(fmean(map(math.log, speeds))),
            "least": min(speeds),
            "below": [f"{row['impl']} at {row['problem']}: {row[state]['speed']:.3f}" for row in below],
        }
    return found


def unmet(document: dict[str, Any]) -> list[str]:
    """What does not hold of it."""
    means = document["speeds"].items()
    slow = [f"{state}: {each['speed']:.4f} of the old speed" for state, each in means if each["speed"] < LEAST]
    return slow + [f"{state}: {text}" for state, each in means for text in each["below"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("--impl", nargs="+", default=[])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    given = parser.parse_args()
    began, draw = time.monotonic(), random.Random(7)
    asked = points(given.impl)
    sides = [Side(checkout.resolve(), asked) for checkout in (given.old, ROOT)]
    builds = [side.answer() for side in sides]
    rows: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    for number, (each, old, new) in enumerate(zip(asked, *builds, strict=True)):
        if time.monotonic() - began > given.seconds:
            found: dict[str, Any] | str = "the time was over"
        elif reasons := [built for built in (old, new) if isinstance(built, str)]:
            found = f"it is not built: {reasons[0]}"
        else:
            found = "the same program" if old == new else raced(sides, number, given.rounds, draw)
        if isinstance(found, str):
            left_out.append({"problem": each["problem"], "impl": each["impl"], "reason": found})
        else:
            rows.append({**each, **found})
        print(each["impl"], each["problem"], found, flush=True)
    for side in sides:
        side.close()
    import torch

    document = {
        "command": command_line([given.old]),
        "old": given.old.name,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(),
        "torch": str(torch.__version__),
        "speeds": summary(rows),
        "same_program": sum(each["reason"] == "the same program" for each in left_out),
        "left_out": left_out,
        "rows": rows,
    }
    print(json.dumps(document["speeds"], indent=1))
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    holds.measured([each["problem"] for each in rows], "kernel")
    if given.hold:
        holds.require(unmet(document))


if __name__ == "__main__":
    main()
