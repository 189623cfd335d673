"""What the gate costs: seconds of each check for variants that pass, references remembered as they are in a sweep.

    python -m benchmarks.gate.cost SPACE [--each N] [--impl NAME ...] [--json docs/results/gate_cost_DEVICE.json]

Builds N random right variants of each implementation of the space, judges each once (G0 to G5), and prints the median
over the variants, check by check. Judged in this process, one after the other; the first one, for which the references
are computed, is not counted.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from autotuner.run.line import Line, LineFactory
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact
from benchmarks.provenance import command_line

JUDGED = ("G1", "G2", "G3", "G4", "G5")
"""Levels that the goal is about: G0 reads files."""


def reports(workbench: Workbench, line: Line, impl: str, count: int, seed: int) -> list[GateReport]:
    """Reports on `count` random variants of the implementation that pass, the first one judged left out."""
    space = workbench.space
    column = space.rows[:, space.parameters.index("IMPL")]
    points = [int(index) for index in (column == list(space.values["IMPL"]).index(impl)).nonzero()[0]]
    chosen = random.Random(seed).sample(points, min(len(points), 2 * count + 1))
    built = [artifact for artifact in workbench.build_all(chosen) if isinstance(artifact, Artifact)]
    found: list[GateReport] = []
    for place, artifact in enumerate(built):
        report = line.check(artifact, workbench.conditions, lambda _: None)
        if place and report.passed and len(found) < count:
            found.append(report)
    return found


def costs(found: list[GateReport]) -> dict[str, Any]:
    """Milliseconds by check and over G1 to G5: medians, and the spread of the sum."""
    codes = [check.code for check in found[0].checks]
    by_check = {
        code: 1e3 * median(next(c.seconds for c in report.checks if c.code == code) for report in found)
        for code in codes
    }
    sums = sorted(1e3 * sum(c.seconds for c in report.checks if c.code.startswith(JUDGED)) for report in found)
    launches = median(sum(check.launches for check in report.checks) for report in found)
    total = {"median": median(sums), "least": sums[0], "most": sums[-1]}
    return {"variants": len(found), "launches": launches, "g1_to_g5_ms": total, "by_check_ms": by_check}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space")
    parser.add_argument("--each", type=int, default=12)
    parser.add_argument("--impl", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    workbench = Workbench(load_space(options.space))
    line = LineFactory(workbench.device, workbench.toolchain, workbench.family)()
    impls = options.impl or [str(value) for value in workbench.space.values["IMPL"]]
    rows = {impl: costs(reports(workbench, line, impl, options.each, options.seed)) for impl in impls}
    for impl, row in rows.items():
        total = row["g1_to_g5_ms"]
        print(f"{impl}: G1 to G5 {total['median']:.0f} ms ({total['least']:.0f} to {total['most']:.0f})", end="; ")
        print(f"{row['variants']} variants, {row['launches']:.0f} launches each")
        print("  " + ", ".join(f"{code} {ms:.1f}" for code, ms in row["by_check_ms"].items()))
    if options.json:
        document = {
            "command": command_line(),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": workbench.device.name,
            "environment": workbench.device.environment,
            "problem": str(workbench.conditions.problems[0]),
            "implementations": rows,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
