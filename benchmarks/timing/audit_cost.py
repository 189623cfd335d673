"""What audits cost a sweep: their share of the seconds that it took.

    python -m benchmarks.timing.audit_cost STORE [--json docs/results/audit_cost.json]

A row a study of the store: trials, how many were audited before they led, the seconds of that, and the seconds of the
search, from each calibration to the last trial. Finals and what they audit are on neither side. Rows that the file
holds of other devices or problems stay.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from autotuner.gate.recheck import AUDIT
from autotuner.store import Store, queries
from benchmarks.provenance import provenance

Row = dict[str, Any]


def cost(store: Store, study: str) -> Row:
    """Of the trials of a study."""
    record, sessions = queries.study(store, study), queries.sessions(store, study)
    outcomes = [queries.trial(store, study, each.number).outcome for each in queries.judged(store, study)]
    audits = [
        check.seconds
        for outcome in outcomes
        if outcome.gate is not None
        for check in outcome.gate.checks
        if check.code == AUDIT
    ]
    runs = sum((each.finished_at - each.started_at).total_seconds() for each in sessions if each.finished_at)
    return {
        "device": record.device.name,
        "torch": sessions[0].calibration.versions["torch"],
        "cache": record.cache,
        "problems": [str(each) for each in record.problems],
        "space": record.space_name,
        "trials": len(outcomes),
        "audits": len(audits),
        "audit_s": round(sum(audits), 2),
        "runs_s": round(runs, 1),
        "share": round(sum(audits) / runs, 4) if runs else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing.audit_cost", description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with closing(Store.open(options.store, read_only=True)) as store:
        rows = [cost(store, name) for name in queries.names(store) if queries.sessions(store, name)]
    for row in rows:
        print(json.dumps(row))
    if options.json is not None:
        held = json.loads(options.json.read_text())["rows"] if options.json.exists() else []
        of = [(row["device"], row["space"], row["problems"]) for row in rows]
        kept = [row for row in held if (row["device"], row["space"], row["problems"]) not in of]
        made = provenance([Path(options.store), options.json])
        options.json.write_text(json.dumps({**made, "rows": kept + rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
