"""What audits cost whole sweeps, those of the search and those of the finals: their share of the seconds.

    python -m benchmarks.timing.audit_cost SPACE ... [--trials 60] [--minutes 5] [--finals-minutes 2]
        [--json docs/results/audit_cost.json] [--hold]

Each space is swept by `autotuner tune` as a user does, from an empty store, finals included. A row a sweep: trials,
how many audits there were before a variant led and how many of finalists, their seconds, and those of the search and of
the finals. Rows that the file holds of other devices, spaces or problems stay. With --hold no share may be 5 % or more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

from autotuner.gate.recheck import AUDIT
from autotuner.store import Store, queries
from autotuner.values.gate_report import CheckResult
from benchmarks import holds
from benchmarks.provenance import ROOT, provenance
from benchmarks.timing.wall import phases, run, whole

MOST = 0.05
"""The share of a sweep that audits may take, 0..1."""

Row = dict[str, Any]


def swept(space: str, problem: str, options: argparse.Namespace) -> Row:
    """A sweep of the space, and what audits took of it."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "studies.db")
        words = [
            "tune",
            space,
            *(["--problem", problem] if problem else []),
            "--store",
            store,
            "--out",
            str(Path(folder) / "best.json"),
        ]
        limits = {"--trials": options.trials, "--minutes": options.minutes, "--finals-minutes": options.finals_minutes}
        words += [str(each) for pair in limits.items() for each in pair]
        done = run([sys.executable, "-m", "autotuner", *words], ROOT, os.environ)
        if done.code:
            sys.exit(f"the sweep of {space} {problem} ended with exit code {done.code}")
        with closing(Store.open(store, read_only=True)) as opened:
            (study,) = queries.names(opened)
            found = {**of_study(opened, study), **phases(done)}
    return {**found, "share": round((found["audit_s"] + found["finals_audit_s"]) / whole(found), 4)}


def of_study(store: Store, study: str) -> Row:
    """What a store says of the audits of a sweep."""
    record, sessions = queries.study(store, study), queries.sessions(store, study)
    outcomes = [queries.trial(store, study, each.number).outcome for each in queries.judged(store, study)]
    in_search = audits(check for each in outcomes if each.gate is not None for check in each.gate.checks)
    finals = queries.finals(store, study)
    heats = () if finals is None else finals.heats
    in_finals = audits(heat.audit for heat in heats if heat.audit is not None)
    return {
        "device": record.device.name,
        "torch": sessions[0].calibration.versions.get("torch", "?"),
        "cache": record.cache,
        "problems": [str(each) for each in record.problems],
        "space": record.space_name,
        "trials": len(outcomes),
        "audits": len(in_search),
        "audit_s": round(sum(in_search), 2),
        "finals_audits": len(in_finals),
        "finals_audit_s": round(sum(in_finals), 2),
    }


def audits(checks: Iterable[CheckResult]) -> list[float]:
    """Seconds of each audit among these checks."""
    return [check.seconds for check in checks if check.code == AUDIT]


def identity(row: Row) -> tuple[object, ...]:
    """Of what a row is."""
    return row["device"], row["space"], tuple(row["problems"])


def merged(path: Path, rows: Sequence[Row]) -> list[Row]:
    """These rows, and those of the file that are of something else."""
    held = json.loads(path.read_text())["rows"] if path.exists() else []
    new = {identity(row) for row in rows}
    return [*(row for row in held if identity(row) not in new), *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="+", metavar="SPACE")
    parser.add_argument("--problem", nargs="*", default=[""], help="of each space; none: its own")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--finals-minutes", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    made, rows = provenance([options.json]), []
    for space, problem in product(options.spaces, options.problem):
        rows.append({**swept(space, problem, options), "command": made["command"], "when": made["when"]})
        print(json.dumps(rows[-1]), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps({"rows": merged(options.json, rows)}, indent=1) + "\n")
    if options.hold:
        shares = {f"{row['space']} {row['problems']}": row["share"] for row in rows}
        holds.require([f"{name}: audits took {share:.1%}" for name, share in shares.items() if share >= MOST])


if __name__ == "__main__":
    main()
