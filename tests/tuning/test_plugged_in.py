"""An op, a kind of device, a sampler and a format of other packages (tests/plugins): nothing of them is in ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from autotuner.values.verdict import Verdict
from tests.helpers.command_line import autotuner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timed,
    pytest.mark.alone,
    pytest.mark.rotating(2, of="whole sweeps"),
]

PLUGINS = Path(__file__).parent.parent / "plugins"
KERNELS = PLUGINS / "rowsum" / "kernels"


def run(folder: Path, *arguments: str) -> str:
    """What the command prints where the plugins are installed, and the store of the folder is the one."""
    path = os.pathsep.join(filter(None, (str(PLUGINS), os.environ.get("PYTHONPATH"))))
    done: subprocess.CompletedProcess[str] = autotuner(folder, *arguments, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sweep(folder: Path, space: str, trials: int, *options: str) -> None:
    limits = ("--trials", str(trials), "--minutes", "3", "--finals-minutes", "0.1")
    run(folder, "tune", str(KERNELS / f"{space}.toml"), *limits, *options, "--out", "best.json")


def test_another_op_is_tuned_from_its_search_space_to_its_export(tmp_path: Path) -> None:
    """Its two mutants are found, its finals are run, and what is exported says which op it is of."""
    sweep(tmp_path, "rowsum_cpu", 6, "--sampler", "downhill")
    best = json.loads((tmp_path / "best.json").read_text())
    assert best["parameters"]["MUTANT"] == "none"
    assert best["confirmed"]
    assert [each["problem"] for each in best["problems"]] == [
        {"op": "rowsum", "rows": 96, "columns": 1000, "dtype": "float32"}
    ]
    assert {"G2.baseline", "G3.scale", "G3.turn"} <= set(best["gate"]["passed"])
    seen = set()
    for number in range(6):
        outcome = json.loads(run(tmp_path, "show", str(number), "--json"))["outcome"]
        mutant = outcome["variant"]["parameters"]["MUTANT"]
        seen.add(mutant)
        assert (outcome["verdict"] == Verdict.INCORRECT) == (mutant != "none")
    assert seen == {"none", "drops_tail", "adds_up"}
    assert "torch.sum" in run(tmp_path, "leaderboard")
    run(tmp_path, "export", "--format", "flags")
    assert "-DIMPL=plain" in (tmp_path / "best.flags").read_text()


def test_another_kind_of_device_runs_a_sweep(tmp_path: Path) -> None:
    sweep(tmp_path, "rowsum_other", 2)
    best = json.loads((tmp_path / "best.json").read_text())
    assert (best["backend"], best["device"]["name"]) == ("other_cpu", "another CPU")
    assert best["confirmed"]
