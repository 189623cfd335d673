"""`tune --dry-run`: what tuning promises, of one problem and of a model, without a sweep."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.serve import record

RECORD = """\
[[problems]]
batch = 1
heads = 2
seq_q = 128
seq_k = 128
head_dim = 64
dtype = "float32"
causal = false
count = 10
us = 200.0
between_us = 1000.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNER_STORE", str(tmp_path / "studies.db"))
    return tmp_path


def foretold(*words: str) -> str:
    done = CliRunner().invoke(app, ["tune", "--dry-run", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_it_says_who_serves_and_what_is_to_be_hoped_for_and_makes_nothing(folder: Path) -> None:
    said = foretold("sdpa_cpu", "--problem", "(1,4,160,64) float32", "--minutes", "2")
    assert "can serve it: simd (" in said
    assert "times its bound" in said
    assert "near it: (1,4,128,64) float32 full: simd 1.836x" in said
    assert "to hope for: 1." in said
    assert "A search takes about 2 min" in said
    assert not list(folder.iterdir())


def test_of_a_problem_that_nothing_near_is_known_of_the_bound_is_all_there_is() -> None:
    assert "nothing near it is known; by the bound" in foretold("sdpa_cpu", "--problem", "(1,1,64,256) bfloat16")


def test_torch_is_timed_on_the_threads_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(called: record.Called) -> float:
        threads.append(torch.get_num_threads())
        return 100.0

    monkeypatch.setattr(record, "microseconds", noted)
    foretold("sdpa_cpu", "--problem", "(1,4,160,64) float32", "--threads", "2")
    assert threads == [2]


def test_of_a_record_it_says_what_the_whole_model_could_gain(folder: Path) -> None:
    (folder / "problems.toml").write_text(RECORD)
    said = foretold("sdpa_cpu", "--problems", "problems.toml")
    assert "They are 20 % of the model's time" in said
    assert "at most 1.250x were they free" in said
