"""Audits of right kernels that are made in pieces."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.timing.audits import Kept, Row


def row(point: str, accused: str | None = None, rejected: str | None = None) -> Row:
    return Row(point, "problem", 10.0, 0.0, -0.01, 0.01, 0.1, 0.5, accused, rejected)


def test_a_run_adds_to_earlier_ones_and_forgets_no_accusation(tmp_path: Path) -> None:
    path = tmp_path / "audits.json"
    first = Kept(path, 1)
    for each in (row("a"), row("b", "keeps results"), row("c", "breaks T1", "G2.T1")):
        first.add("space", "cold", each)
    first.add("space", "warm", row("a"))
    first.write()
    then = Kept(path, 2, json.loads(path.read_text())["runs"])
    assert then.lacking("space", 10) == 9  # the warm ones are fewest
    assert then.lacking("another", 10) == 10
    assert then.accused(["space", "another"]) == {"space": 1, "another": 0}
    then.add("space", "warm", row("d", "keeps results"))
    then.write()
    runs = json.loads(path.read_text())["runs"]
    assert [run["seed"] for run in runs] == [1, 2]
    assert len(runs[0]["spaces"]["space"]["cold"]["rejected"]) == 1
    assert Kept(path, 3, runs).accused(["space"]) == {"space": 2}
