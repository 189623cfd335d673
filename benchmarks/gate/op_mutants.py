"""Judges the mutants and the right implementations of the ops in tests/mutants/NAME, and keeps what the gate said of
each.

    python -m benchmarks.gate.op_mutants OUT.json [--backend cpu|cuda] [--op NAME ...] [--name MUTANT ...] [--seeds N]
        [--hold]

Every mutant is judged in every element type of expected.toml, for CUDA of expected_cuda.toml; right implementations
under N sets of secret seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.toolchain import Toolchain
from autotuner.run.local import LocalExecutor
from autotuner.tuning.workbench import toolchain_for
from benchmarks import holds
from benchmarks.gate.mutants import device_of, seed_sets, worst_ratio
from benchmarks.provenance import command_line
from tests.helpers import preload
from tests.helpers.judging import cpu_line, cuda_line
from tests.mutants.expectations import Backend, Seeds, meets
from tests.mutants.of_ops import TABLES, Setting, family, folders, settings


def executor_for(toolchain: Toolchain, kernels: Family) -> LocalExecutor:
    """Processes that judge implementations of a family."""
    if isinstance(toolchain, CudaToolchain):
        return LocalExecutor(cuda_line(toolchain, kernels), preload.CUDA, overlap=True, jobs_per_process=50)
    assert isinstance(toolchain, CpuToolchain)
    return LocalExecutor(cpu_line(toolchain, kernels), preload.CPU)


def judged(
    toolchain: Toolchain, backend: Backend, op: str, table: str, names: list[str], seeds: list[Seeds]
) -> Iterator[dict[str, Any]]:
    """What the gate says of each implementation of a table."""
    found = [each for group in settings(op, backend, table) for each in group if not names or each.name in names]
    _build(toolchain, found)
    with closing(executor_for(toolchain, family(op, table))) as executor:
        for each in sorted(found, key=lambda setting: setting.dtype):
            for some in seeds if table == "right" else seeds[:1]:
                yield row(each, executor, some)


def _build(toolchain: Toolchain, found: list[Setting]) -> None:
    """Side by side, so that each is in the cache when its turn comes."""

    def one(each: Setting) -> None:
        build(family(each.op, each.table), each.variant, each.problem, toolchain)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, found))


def row(each: Setting, executor: LocalExecutor, seeds: Seeds) -> dict[str, Any]:
    """What the gate said."""
    outcome = each.judge(executor, seeds)
    fault, worst = outcome.fault, worst_ratio(outcome)
    return {
        "table": each.table,
        "name": each.name,
        "dtype": each.dtype,
        "seeds": seeds,
        "expected": each.codes,
        "found": fault.code if fault else "pass",
        "verdict": str(outcome.verdict),
        "as_expected": meets(outcome, each.codes),
        "worst_ratio": worst if worst is None or worst < float("inf") else "inf",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--op", choices=folders(), nargs="+", default=folders())
    parser.add_argument("--name", nargs="+", default=[], help="these alone")
    parser.add_argument("--seeds", type=int, default=5, help="sets of secret seeds for the right implementations")
    holds.add_option(parser)
    options = parser.parse_args()
    device = device_of(options.backend)
    toolchain, seeds = toolchain_for(device), seed_sets(options.seeds)
    rows: list[dict[str, Any]] = []
    for op in options.op:
        for table in TABLES:
            for each in judged(toolchain, options.backend, op, table, options.name, seeds):
                rows.append({"op": op, **each})
                print(
                    op, table, each["name"], each["dtype"], each["found"], each["verdict"], file=sys.stderr, flush=True
                )
    holds.measured([each["name"] for each in rows], "mutant", options.name)
    unmet = [f"{each['name']} {each['dtype']}: {each['found']}" for each in rows if not each["as_expected"]]
    document = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        "device": device.name,
        "environment": device.environment,
        "rejected": sum(each["table"] == "wrong" and each["found"] != "pass" for each in rows),
        "passed": sum(each["table"] == "right" and each["found"] == "pass" for each in rows),
        "unexpected": unmet,
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(rows)} judged, {len(unmet)} not as expected")
    if options.hold:
        holds.require(unmet)


if __name__ == "__main__":
    main()
