"""Whether two releases of torch lead to the same verdicts.

    python -m benchmarks.gate.cross_version A.json B.json [--json docs/results/cross_version.json]

A and B are results of `python -m benchmarks.gate.mutants OUT.json`, one run under each release, on one machine with
the same sources. Compares verdict and code of first failure of each implementation. Exit code 1 when a verdict differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.provenance import command_line

Key = tuple[str, str, str, bool, int, tuple[int, ...]]
LATENCY = ("measured", "raced_out")
"""Both are a pass: which of the two depends on the clock."""


def rows_of(document: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    """Every judged implementation with its setting and seeds."""
    found = {}
    for backend, parts in document.items():
        for part in parts.values():
            for each in part["rows"]:
                seeds = tuple(each["seeds"])
                key = (backend, each["name"], each["dtype"], each["causal"], each["head_dim"], seeds)
                found[key] = each
    return found


def versions(document: dict[str, Any]) -> str:
    """The release of torch under which all of it was judged."""
    found = {part["environment"]["torch"] for parts in document.values() for part in parts.values()}
    assert len(found) == 1, found
    return str(found.pop())


def verdict(row: dict[str, Any]) -> str:
    return "pass" if row["verdict"] in LATENCY else str(row["verdict"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs=2, type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    first, second = (json.loads(path.read_text()) for path in options.results)
    a, b = rows_of(first), rows_of(second)
    assert a.keys() == b.keys(), "the two runs judged different implementations"
    pairs = [(a[key], b[key]) for key in a]
    different = [
        {
            "name": x["name"],
            "dtype": x["dtype"],
            "causal": x["causal"],
            "found": [x["found"], y["found"]],
            "verdict": [verdict(x), verdict(y)],
        }
        for x, y in pairs
        if (x["found"], verdict(x)) != (y["found"], verdict(y))
    ]
    parts = [part for parts in first.values() for part in parts.values()]
    document = {
        "command": command_line(),
        "device": parts[0]["device"],
        "torch": [versions(first), versions(second)],
        "compared": len(pairs),
        "same_verdict": sum(verdict(x) == verdict(y) for x, y in pairs),
        "same_code": sum(x["found"] == y["found"] for x, y in pairs),
        "different": different,
    }
    print(json.dumps(document, indent=1))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(document["same_verdict"] != document["compared"])


if __name__ == "__main__":
    main()
