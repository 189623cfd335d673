"""Judges the mutants and the right implementations of the ops in tests/mutants/NAME on the CPU, and keeps what the gate
said of each.

    python -m benchmarks.gate.op_mutants OUT.json [--op NAME ...] [--name MUTANT ...] [--seeds N] [--hold]

Every mutant is judged in every element type of expected.toml, right implementations under N sets of secret seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.run.local import LocalExecutor
from benchmarks import holds
from benchmarks.gate.mutants import device_of, seed_sets, worst_ratio
from benchmarks.provenance import command_line
from tests.helpers import preload
from tests.helpers.lines import cpu_line
from tests.mutants.expectations import Seeds
from tests.mutants.of_ops import TABLES, Setting, family, folders, settings


def judged(op: str, table: str, names: list[str], seeds: list[Seeds]) -> Iterator[dict[str, Any]]:
    """What the gate says of each implementation of a table."""
    toolchain = CpuToolchain.discover()
    found = [each for group in settings(op, "cpu", table) for each in group if not names or each.name in names]
    with closing(LocalExecutor(cpu_line(toolchain, family(op, table)), preload.CPU)) as executor:
        for each in sorted(found, key=lambda setting: setting.dtype):
            for some in seeds if table == "right" else seeds[:1]:
                yield row(each, executor, some)


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
        "as_expected": each.met_by(outcome),
        "worst_ratio": worst if worst is None or worst < float("inf") else "inf",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--op", choices=folders(), nargs="+", default=folders())
    parser.add_argument("--name", nargs="+", default=[], help="these alone")
    parser.add_argument("--seeds", type=int, default=5, help="sets of secret seeds for the right implementations")
    holds.add_option(parser)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for op in options.op:
        for table in TABLES:
            for each in judged(op, table, options.name, seed_sets(options.seeds)):
                rows.append({"op": op, **each})
                print(
                    op, table, each["name"], each["dtype"], each["found"], each["verdict"], file=sys.stderr, flush=True
                )
    device = device_of("cpu")
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
