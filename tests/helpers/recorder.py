"""Writes down what became of each test, for a run of several parts that says at its end how long each took."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

ALONE = "alone"
"""Key of the tests with that mark, in what a process of pytest-xdist sends when it ends, and in the file."""


class Recorder:
    """A plugin of pytest; with pytest-xdist it works in the process that hands out the tests."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._skipped: dict[str, str] = {}
        self._alone: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.skipped:
            self._counts["skipped"] += 1
            self._skipped[report.nodeid] = reason(report)
        elif report.when == "call" or report.failed:
            self._counts["passed" if report.passed else "failed"] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._alone = getattr(node, "workeroutput", {}).get(ALONE, self._alone)

    def pytest_sessionfinish(self) -> None:
        found = {"seconds": self._seconds, "counts": self._counts, "skipped": self._skipped, ALONE: self._alone}
        self._file.write_text(json.dumps(found))


def reason(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "unknown"
