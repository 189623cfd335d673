"""Tunes the CPU space of rmsnorm for two problems, with one thread and with all, times the winners again.

    python -m benchmarks.rmsnorm.cpu [--trials N] [--json docs/results/cpu_rmsnorm.json] [--store PATH] [PROBLEM ...]

For each problem and number of threads: a sweep, then the best variant against the pinned baseline as
benchmarks/attention/cpu.py does it. Beside that stand the times of every baseline at the sweep's start: torch's
rms_norm, and what torch's compiler makes of it; and what a copy reaches. Needs a quiet machine, for half an hour on two
cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.workbench import Workbench
from benchmarks.attention.cpu import row, sweep

SPACE = "rmsnorm_cpu"
PROBLEMS = ("(512,4096) float32", "(4096,1024) float32")


def calibrated(store: Store, study: str) -> dict[str, Any]:
    """When the best variant's run began: microseconds of every baseline, and what a copy reaches, in GB/s."""
    best = standings.best(store, study)
    assert best is not None
    found = best.record.session.calibration
    copied = {} if found.ceilings is None else {"copy_gigabytes_a_second": found.ceilings.bytes / 1e9}
    return {"baselines_us": {timing.backend: timing.median_us for timing in found.timings}, **copied}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", default=PROBLEMS)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 0], help="0 stands for all")
    parser.add_argument("--store", type=Path, help="keep the studies here, and go on with them")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, closing(Store.open(str(options.store or f"{folder}/s.db"))) as store:
        for problem, threads in itertools.product(options.problems, options.threads):
            started = time.monotonic()
            workbench, study = sweep(store, SPACE, problem, threads or None, options.trials)
            found = row(store, workbench, study, time.monotonic() - started)
            moved = workbench.conditions.problems[0].bytes / found["microseconds"] / 1e3
            rows.append({**found, **calibrated(store, study), "gigabytes_a_second": moved})
            print(json.dumps(rows[-1]), flush=True)
            if options.json:
                keep(rows, workbench, options.json)


def keep(rows: list[dict[str, Any]], workbench: Workbench, path: Path) -> None:
    """Writes the rows so far: the next one takes minutes, and may not come to its end."""
    document = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": workbench.device.name,
        "environment": workbench.device.environment,
        "compiler": workbench.toolchain.version,
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
