"""Audits of right kernels that are made in pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotuner.tuning.workbench import Workbench, load_space
from benchmarks.timing.audits import Kept, Row, gated


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
    assert then.lacking("space", 10, ("warm", "cold")) == {"warm": 9, "cold": 7}
    assert then.lacking("space", 3, ("warm", "cold")) == {"warm": 2}
    assert then.lacking("another", 10, ("cold",)) == {"cold": 10}
    assert then.accused(["space", "another"]) == {"space": 1, "another": 0}
    then.add("space", "warm", row("d", "keeps results"))
    then.write()
    runs = json.loads(path.read_text())["runs"]
    assert [run["seed"] for run in runs] == [1, 2]
    assert len(runs[0]["spaces"]["space"]["cold"]["rejected"]) == 1
    assert Kept(path, 3, runs).accused(["space"]) == {"space": 2}


def test_a_policy_that_no_run_had_lacks_all_of_its_points(tmp_path: Path) -> None:
    warm = Kept(tmp_path / "audits.json", 1)
    warm.add("space", "warm", row("a"))
    warm.write()
    runs = json.loads((tmp_path / "audits.json").read_text())["runs"]
    assert Kept(None, 2, runs).lacking("space", 1, ("warm", "cold")) == {"cold": 1}


def test_what_an_earlier_run_accuses_goes_through_the_gate_once(tmp_path: Path) -> None:
    path = tmp_path / "audits.json"
    earlier = [{"point": each, "accused": "breaks T1"} for each in ("wrong", "right")]
    kept = Kept(path, 2, [{"spaces": {"space": {"cold": {"points": 2, "accused": earlier}}}}])
    asked: list[str] = []

    def gated(point: str) -> str | None:
        asked.append(point)
        return "G2.T1: wrong" if point == "wrong" else None

    for _ in range(2):
        kept.settle("space", gated)
        assert asked == ["wrong", "right"]
        assert kept.accused(["space"]) == {"space": 1}
    kept.write()
    (run,) = json.loads(path.read_text())["runs"]  # none of this one, which has audited nothing
    assert [each["point"] for each in run["spaces"]["space"]["cold"]["rejected"]] == ["wrong"]


@pytest.mark.slow
def test_the_gate_is_asked_about_a_point_as_it_is_kept() -> None:
    """A right one, and one that the space has no more."""
    bench = Workbench(load_space("sdpa_cpu_small"))
    assert gated(bench, str(bench.space.point(bench.space.default_index))) is None
    assert gated(bench, "{'IMPL': 'none'}") is None
