"""An op, a kind of device, a sampler and a format of other packages (tests/plugins): nothing of them is in ours."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotuner.values.verdict import Verdict
from tests.helpers.chaos import AROUND, PLUGINS
from tests.helpers.command_line import autotuner, in_vain

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.sampled(1, of="whole sweeps")]

KERNELS = PLUGINS / "rowsum" / "kernels"


def run(folder: Path, *arguments: str) -> str:
    """What the command prints where the plugins are installed, and the store of the folder is the one."""
    done = autotuner(folder, *arguments, **AROUND)
    assert done.returncode == 0, done.stderr
    return done.stdout


def best_of_a_sweep(folder: Path, space: str, trials: int, *options: str) -> dict[str, Any]:
    """What is exported, confirmed by finals unless these say that the machine was too busy for it. In less than two
    minutes no baseline is compiled, which takes as long as all else here."""
    limits = ("--trials", str(trials), "--minutes", "1.9", "--finals-minutes", "0.1")
    said = run(folder, "tune", str(KERNELS / f"{space}.toml"), *limits, *options, "--out", "best.json")
    best: dict[str, Any] = json.loads((folder / "best.json").read_text())
    assert best["confirmed"] or in_vain(said)
    return best


def test_another_op_is_tuned_from_its_search_space_to_its_export(tmp_path: Path) -> None:
    """Its two mutants are found, its finals are run, and what is exported says which op it is of."""
    best = best_of_a_sweep(tmp_path, "rowsum_cpu", 6, "--sampler", "downhill")
    assert best["parameters"]["MUTANT"] == "none"
    assert [each["problem"] for each in best["problems"]] == [
        {"op": "rowsum", "rows": 96, "columns": 1000, "dtype": "float32"}
    ]
    assert {"G2.baseline", "G3.scale_x", "G3.permute"} <= set(best["gate"]["passed"])
    seen = set()
    for number in range(6):
        outcome = json.loads(run(tmp_path, "show", str(number), "--json"))["report"]
        mutant = outcome["variant"]["parameters"]["MUTANT"]
        seen.add(mutant)
        assert (outcome["verdict"] == Verdict.INCORRECT) == (mutant != "none")
    assert seen == {"none", "drops_tail", "adds_up"}
    assert " torch us " in run(tmp_path, "leaderboard")
    run(tmp_path, "export", "--format", "flags", "--estimates")
    assert "-DIMPL=plain" in (tmp_path / "best.flags").read_text()


def test_another_kind_of_device_runs_a_sweep(tmp_path: Path) -> None:
    run(tmp_path, "tune", str(KERNELS / "rowsum_other.toml"), "--trials", "1", "--no-finals", "--out", "best.json")
    best = json.loads((tmp_path / "best.json").read_text())
    assert (best["backend"], best["device"]["name"]) == ("other_cpu", "another CPU")
