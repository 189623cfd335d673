"""Runs tests of this project and keeps what became of them.

python -m benchmarks.tests_run docs/results/tests_gpu.json -m gpu [ARGUMENT OF PYTEST...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.devices.environment import usable_cpus
from benchmarks.provenance import ROOT, command_line

OUTCOMES = ("failure", "error", "skipped")


def read(report: Path) -> dict[str, Any]:
    """Of pytest's report in XML: how many tests had each outcome, the seconds of all, and why some did not pass."""
    counts: Counter[str] = Counter()
    others = {}
    seconds = 0.0
    for case in ET.parse(report).getroot().iter("testcase"):
        outcome = next((each for each in case if each.tag in OUTCOMES), None)
        counts["passed" if outcome is None else outcome.tag] += 1
        seconds += float(case.get("time", 0))
        if outcome is not None:
            others[f"{case.get('classname')}.{case.get('name')}"] = outcome.get("message", "")[:200]
    return {"counts": counts, "seconds_of_all": round(seconds, 1), "not_passed": others}


def device() -> dict[str, str]:
    """The GPU that torch sees, if there is one. It takes some seconds to ask."""
    import torch

    there = {"device": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {**there, "torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kept", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of pytest")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "auto",
            "--dist",
            "worksteal",
            f"--junitxml={report}",
            *given.arguments,
        ]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        found = read(report)
    where = {"command": command_line(), "when": datetime.now(UTC).isoformat(timespec="seconds"), "cpus": usable_cpus()}
    given.kept.write_text(json.dumps(where | device() | found, indent=1) + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
