"""Judges the CUDA mutants and right implementations of tests/mutants on the host emulator, in every setting.

    python -m benchmarks.gate.emulated [--only numeric right] [--json docs/results/mutants_emulated.json]

The gate's numeric levels say what they find in the output of each emulated launch. Mutants that an invariant finds, and
no case, are left to a device. Exit code 1 where something else is found than is expected. Needs CUDA's headers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.values.versions import version_of
from benchmarks import holds
from benchmarks.provenance import command_line
from tests.emulator.emulator import cuda_include
from tests.helpers.emulated import TILES, first_failure, seen
from tests.mutants.expectations import Expectation, expectations


def row(expectation: Expectation) -> dict[str, Any]:
    """What was found."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=tuple(TILES), nargs="+", default=tuple(TILES))
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    if cuda_include() is None:
        sys.exit("emulated: there are no CUDA headers; install them (pip install 'autotuner[cuda]') or set CUDA_HOME")
    rows = []
    for each in (each for table in options.only for group in expectations("cuda", table) for each in group):
        if seen(each):
            rows.append(row(each))
            print(f"{len(rows)}: {each} {rows[-1]['found']}", flush=True)
    unmet = [
        f"{each['name']}: {each['found']}, not {each['expected']}"
        for each in rows
        if each["found"] not in each["expected"]
    ]
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": version_of("torch"),
        "unexpected": unmet,
        "rows": rows,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    holds.require(unmet)


if __name__ == "__main__":
    main()
