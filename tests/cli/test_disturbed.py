"""A disturbed machine as a user meets it: a store that remembers a far faster baseline than any here can be."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers.command_line import SPACE, autotuner, lay_out, one_line

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.sampled(2, of="whole sweeps")]


def remember_a_faster_machine(store: Path) -> None:
    """Every calibration of the store was a hundred times faster."""
    with closing(sqlite3.connect(store)) as raw:
        for key, text in raw.execute("SELECT id, calibration FROM at_session").fetchall():
            found = re.sub(r'"median_us":([\d.e+-]+)', lambda us: f'"median_us":{float(us[1]) / 100}', text)
            raw.execute("UPDATE at_session SET calibration = ? WHERE id = ?", (found, key))
        raw.commit()


def test_a_run_under_protest_keeps_its_rejects_and_believes_no_latency(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "other.toml").write_text(SPACE.replace(', "k_and_v_swapped", "last_row_unwritten"', ""))

    def tune(space: str, trials: int, *more: str) -> str:
        done = autotuner(tmp_path, "tune", f"{space}.toml", "--trials", str(trials), "--no-finals", *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tune("other", 1)
    remember_a_faster_machine(tmp_path / "studies.db")
    said = tune("space", 4, "--patience", "0")
    assert "marked as disturbed" in said
    assert "Measured on a disturbed machine, so not ranked: trial 0;" in said
    (summary,) = (each for each in json.loads(autotuner(tmp_path, "status", "--json").stdout) if each["judged"] == 3)
    assert summary["by_verdict"] == {"incorrect": 3, "disturbed": 1}
    assert (summary["disturbed"], summary["best_trial"]) == ([0], None)
    for command in ("show", "export"):
        one_line(autotuner(tmp_path, command, summary["name"]), "no variant measured to the end")
    assert "Not believed:" in autotuner(tmp_path, "show", "0", summary["name"]).stdout

    tune("space", 4, "--calm")
    best = json.loads(autotuner(tmp_path, "show", summary["name"], "--json").stdout)
    assert best["trial"]["parameters"]["MUTANT"] == "none"
    assert best["trial"]["number"] > 3
