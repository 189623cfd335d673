"""Judges the mutants of tests/mutants/views.toml, or triton.toml, and prints what the gate says of each.

    python -m benchmarks.gate.view_mutants [--table views|triton] [--backend cpu|cuda] [--json FILE] [NAME ...]

Exit code 1 where one is not rejected as it must be, or the right one is.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.devices import DEVICES, Wishes
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.toolchain import Toolchain
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.tuning.workbench import toolchain_for
from benchmarks import holds
from benchmarks.provenance import command_line
from tests.helpers import preload
from tests.helpers.judging import cpu_line, cuda_line, judged
from tests.mutants.expectations import Backend, meets
from tests.mutants.views import FAMILIES, View, conditions, family, mutants, problem


def executor_for(toolchain: Toolchain, kernels: Family) -> LocalExecutor:
    """Processes that judge them."""
    if isinstance(toolchain, CudaToolchain):
        return LocalExecutor(cuda_line(toolchain, kernels), preload.CUDA, overlap=True, jobs_per_process=50)
    assert isinstance(toolchain, CpuToolchain)
    return LocalExecutor(cpu_line(toolchain, kernels), preload.CPU, Deadlines(check=120))


def build_all(toolchain: Toolchain, wanted: list[View], backend: Backend) -> None:
    """Side by side, so that each is in the cache when its turn comes."""

    def one(each: View) -> None:
        build(family(each.table), each.variant(backend), conditions(each, backend).problems[0], toolchain)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, wanted))


def row(executor: LocalExecutor, each: View, backend: Backend) -> dict[str, Any]:
    """What the gate says of one."""
    started = time.monotonic()
    outcome = judged(executor, each.variant(backend), conditions(each, backend), soak="never")
    fault = outcome.fault
    return {
        "name": each.name,
        "what": each.what,
        "expected": each.codes,
        "found": fault.code if fault else "pass",
        "verdict": str(outcome.verdict),
        "detail": fault.detail if fault else "",
        "as_expected": meets(outcome, each.codes),
        "seconds": round(time.monotonic() - started, 2),
    }


def main() -> int:
    """0 when all are rejected as they must be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate.view_mutants", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", choices=FAMILIES, default="views")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wanted = [each for each in mutants(given.table) if not given.names or each.name in given.names]
    holds.measured([each.name for each in wanted], "mutant", given.names)
    device = DEVICES[given.backend].choose(Wishes(threads=1 if given.backend == "cpu" else None)).device
    toolchain, rows = toolchain_for(device), list[dict[str, Any]]()
    build_all(toolchain, wanted, given.backend)
    with closing(executor_for(toolchain, family(given.table))) as executor:
        for each in wanted:
            rows.append(found := row(executor, each, given.backend))
            told = "as expected" if found["as_expected"] else f"expected {', '.join(each.codes)}"
            print(f"{each.name}: {found['verdict']} {found['found']}, {told}; {found['detail'][:100]}", flush=True)
    if given.json is not None:
        document = {
            "command": command_line(),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device.name,
            "environment": device.environment,
            "problem": problem(given.table, given.backend),
            "mutants": rows,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(not all(each["as_expected"] for each in rows))


if __name__ == "__main__":
    raise SystemExit(main())
