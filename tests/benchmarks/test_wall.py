"""Where the wall time of a sweep goes, by the lines of its output; and the rows of what audits cost."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import Store
from benchmarks.pages import took
from benchmarks.provenance import RESULTS
from benchmarks.timing import audit_cost
from benchmarks.timing.audit_cost import merged, of_study
from benchmarks.timing.wall import Line, Run, phases, run, whole
from tests.helpers import simulated
from tests.helpers.simulated_finals import confirmed, executor, swept

SAID = (
    (0.5, "installing into .venv ..."),
    (90.0, "sdpa_cpu: 43,224 valid points of 3,359,664; (1,8,512,64) float32 full"),
    (140.0, "the machine is calm after 8 s of waiting"),
    (200.0, "the machine is disturbed still, after 42 s of waiting: the baseline takes 1 us"),
    (390.0, "finals: calibrating"),
    (420.0, "finals: the machine is calm again; waited 6 s so far"),
    (450.0, "finals: the machine is calm again; waited 20 s so far"),
    (510.0, "best.json has trial 10"),
)


def test_installing_search_finals_and_waiting_are_told_apart() -> None:
    found = phases(Run(tuple(Line(*each) for each in SAID), 512.0, 0))
    assert found == {"before_s": 90.0, "search_s": 250.0, "finals_s": 102.0, "waited_s": 70.0}
    assert whole(found) == 352.0


def test_a_transcript_that_is_kept_has_what_tells_them_apart() -> None:
    """The words that are looked for are those that are said."""
    said = (RESULTS / "make_tune.txt").read_text().splitlines()
    begun, ended = (
        next(at for at, text in enumerate(said) if words in text) for words in ("valid points", "finals: calibrating")
    )
    hour = 3600.0  # a line: longer than was waited
    found = phases(Run(tuple(Line(hour * at, text) for at, text in enumerate(said)), hour * len(said), 0))
    assert found["before_s"] == hour * begun
    assert found["search_s"] + found["waited_s"] >= hour * (ended - begun)
    assert sum(found.values()) == hour * len(said)
    waits = [text for text in said if "s of waiting" in text or "s so far" in text]
    assert (found["waited_s"] > 0) == bool(waits)


def test_output_without_a_sweep_has_no_phases() -> None:
    with pytest.raises(ValueError, match="no sweep"):
        phases(Run((Line(0.0, "autotuner: no such space"),), 1.0, 2))


def test_what_a_command_says_comes_in_turn_without_its_errors(tmp_path: Path) -> None:
    code = "import os, sys; print('one'); print('two', file=sys.stderr); print(os.getcwd()); sys.exit(3)"
    done = run([sys.executable, "-c", code], tmp_path, os.environ)
    assert ([line.text for line in done.lines], done.code) == (["one", str(tmp_path)], 3)
    assert [line.at for line in done.lines] == sorted(line.at for line in done.lines)


def test_the_page_says_what_a_recorded_sweep_took() -> None:
    found = {"before_s": 90.0, "search_s": 250.0, "finals_s": 110.0, "waited_s": 70.0, "cpus": 2, "torch": "2"}
    said = took({**found, "when": "2026-01-01T00:00:00", "asked": {"TRIALS": "5"}, "command": "python -m it"})
    assert "250 s and the finals 110 s, 6.0 minutes together" in said
    assert "TRIALS=5" in said
    assert took(None) == ""


def test_audits_of_search_and_finals_are_counted_once(tmp_path: Path) -> None:
    with closing(Store.open(str(tmp_path / "studies.db"))) as store:
        study = swept(store, simulated.truth, 15)
        searched = of_study(store, study)
        found = confirmed(store, study, executor(simulated.truth))
        row = of_study(store, study)
    assert searched["audits"] > 0
    assert searched["finals_audits"] == 0
    assert row["audits"] == searched["audits"]
    assert 0 < row["finals_audits"] < len(found.finalists)  # who led in the search was audited there


def test_rows_of_other_sweeps_stay(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    row = {"device": "d", "space": "s", "problems": ["p"], "share": 0.1}
    others = [{**row, "space": "t"}, {**row, "device": "e"}]
    path.write_text(json.dumps({"rows": [row, *others]}))
    assert merged(path, [{**row, "share": 0.2}]) == [*others, {**row, "share": 0.2}]
    assert merged(tmp_path / "none.json", [row]) == [row]


def test_a_share_that_is_too_large_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"device": "d", "space": "long", "problems": ["p"], "share": 0.06}
    monkeypatch.setattr(audit_cost, "swept", lambda space, options: row)
    out = tmp_path / "cost.json"
    monkeypatch.setattr(sys, "argv", ["audit_cost", "long", "--json", str(out), "--hold"])
    with pytest.raises(SystemExit):
        audit_cost.main()
    assert "long: audits took 6.0%" in capsys.readouterr().err
    assert json.loads(out.read_text())["rows"][0]["share"] == 0.06
