"""Judges the CUDA mutants and right implementations of tests/mutants on the host emulator, in every setting.

    python -m benchmarks.gate.emulated [--only numeric right] [--json docs/results/mutants_emulated.json]
    python -m benchmarks.gate.emulated --ops [--name MUTANT ...] [--json docs/results/mutants_ops_emulated.json]

With --ops those of the ops in tests/mutants/NAME. The gate's numeric levels say what they find in the output of each
emulated launch. Mutants that an invariant, the timing or a guard finds, and no case, are left to a device. Exit code 1
where something else is found than is expected. Needs CUDA's headers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.values.versions import version_of
from benchmarks import holds
from benchmarks.provenance import command_line
from tests.emulator.emulator import cuda_include
from tests.helpers.emulated import TILES, first_failure, first_failure_of, seen
from tests.mutants.expectations import Expectation, expectations
from tests.mutants.of_ops import TABLES as OF_OPS, Setting, folders, settings


def row(expectation: Expectation) -> dict[str, Any]:
    """What was found of attention's."""
    started = time.monotonic()
    return {
        "table": expectation.table,
        "name": expectation.name,
        "dtype": expectation.dtype,
        "causal": expectation.causal,
        "head_dim": expectation.head_dim,
        "expected": expectation.codes,
        "found": first_failure(expectation),
        "seconds": round(time.monotonic() - started, 2),
    }


def row_of(setting: Setting) -> dict[str, Any]:
    """The same of another op's."""
    started = time.monotonic()
    return {
        "op": setting.op,
        "table": setting.table,
        "name": setting.name,
        "dtype": setting.dtype,
        "expected": setting.codes,
        "found": first_failure_of(setting),
        "seconds": round(time.monotonic() - started, 2),
    }


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What was found of all that are asked for."""
    if options.ops:
        groups = (group for op in folders() for table in OF_OPS for group in settings(op, "cuda", table))
        yield from (row_of(each) for group in groups for each in group if seen(each) and wanted(each, options))
    else:
        found = (each for table in options.only for group in expectations("cuda", table) for each in group)
        yield from (row(each) for each in found if seen(each) and wanted(each, options))


def wanted(each: Expectation | Setting, options: argparse.Namespace) -> bool:
    return not options.name or each.name in options.name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=tuple(TILES), nargs="+", default=tuple(TILES))
    parser.add_argument("--ops", action="store_true", help="those of the ops in tests/mutants/NAME")
    parser.add_argument("--name", nargs="+", default=[], help="these alone")
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    if cuda_include() is None:
        sys.exit("emulated: no CUDA headers: pip install 'kernel-autotuner[cuda]', or set CUDA_HOME")
    found = []
    for each in rows(options):
        found.append(each)
        print(f"{len(found)}: {each['name']} {each['dtype']} {each['found']}", flush=True)
    holds.measured([each["name"] for each in found], "mutant", options.name)
    unmet = [
        f"{each['name']} {each['dtype']}: {each['found']}, not {each['expected']}"
        for each in found
        if each["found"] not in each["expected"]
    ]
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": version_of("torch"),
        "unexpected": unmet,
        "rows": found,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    holds.require(unmet)


if __name__ == "__main__":
    main()
