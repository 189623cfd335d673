"""What it takes a process to enter its cage: in one that was forked from a process that has imported torch and the
device's modules, as a judge is.

    python -m benchmarks.throughput.cage_cost [--processes 101] [--rounds 3] [--json docs/results/cage_cost.json]

Beside the time that passes stands the time of the CPU, which other programs hardly change. Exit code 1 where in every
round the median of that is 10 ms or more.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.devices import DEVICES, Wishes
from autotuner.run import cage
from autotuner.run.cage import CageParts
from autotuner.values.versions import version_of
from benchmarks import holds
from benchmarks.provenance import RESULTS, provenance

GOAL_MS = 10.0
"""Milliseconds of a process, at most."""
WAY = "walls alone"
"""What the document calls that."""


class Took(NamedTuple):
    """Seconds that one process took."""

    passed: float
    cpu: float


def took(parts: CageParts, folder: Path) -> Took:
    """By one process, forked from this one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        passed, cpu = time.perf_counter(), time.process_time()
        cage.enter(parts, folder, cage.Work("float32"))
        os.write(writer, json.dumps([time.perf_counter() - passed, time.process_time() - cpu]).encode())
        signal.pause()
    try:
        return Took(*json.loads(os.read(reader, 1000)))
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def rounds_ms(parts: CageParts, processes: int, rounds: int) -> list[dict[str, float]]:
    """For each round the medians of its processes, and the most that passed in one, in milliseconds."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            every = [took(parts, Path(folder)) for _ in range(processes)]
            of = {
                "cpu": statistics.median(each.cpu for each in every),
                "passed": statistics.median(each.passed for each in every),
                "most": max(each.passed for each in every),
            }
            found.append({name: round(1000 * value, 2) for name, value in of.items()})
    return found


def best(rounds: Sequence[dict[str, float]], what: str = "cpu") -> float:
    """Of the rounds' medians the least, in milliseconds: the others were disturbed more."""
    return min(each[what] for each in rounds)


def measured(processes: int, rounds: int) -> dict[str, Any]:
    """What it takes, with the machine's load and the memory of the process that is forked: a fork copies its page
    tables."""
    kind = DEVICES["cpu"]
    importlib.import_module("torch")
    importlib.import_module(kind.module)
    parts = CageParts.of(kind.cage)
    load = round(os.getloadavg()[0], 1)
    ms = rounds_ms(parts, processes, rounds)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "cage": cage.summary(kind.cage),
        "resident_bytes": resident,
        "load": load,
        "processes": processes,
        "ms": {WAY: ms},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--processes", type=int, default=101, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS / "cage_cost.json")
    options = parser.parse_args()
    made = provenance()
    made["versions"] |= {"torch": version_of("torch")}
    found = measured(options.processes, options.rounds)
    device = DEVICES["cpu"].choose(Wishes()).device
    document = {**made, "device": device.name, "os": device.environment["os"], **found}
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(found["ms"], indent=1))
    holds.require([f"{GOAL_MS:g} ms or more"] if best(found["ms"][WAY]) >= GOAL_MS else [])


if __name__ == "__main__":
    main()
