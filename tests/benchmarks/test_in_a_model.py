"""A model's run that goes on where it was cut off."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from autotuner.devices import DEVICES, Wishes
from benchmarks.inference.in_a_model import Steps, where

STEP = """
import sys
with open("ran", "a") as file:
    file.write(sys.argv[1] + " ")
sys.exit("has no finals" if "refused" in sys.argv else 0)
"""


def ran(folder: Path, *words: str) -> list[str]:
    """What was run anew of a command for each word."""
    (folder / "ran").write_text("")
    steps = Steps(folder)
    for word in words:
        assert steps.run("step", word) == f"step {word}"
    return (folder / "ran").read_text().split()


def test_what_was_run_is_not_run_again_unless_what_it_reads_may_be_another(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(STEP)
    assert ran(tmp_path, "record", "tune") == ["record", "tune"]
    assert ran(tmp_path, "record", "tune", "export") == ["export"]
    assert ran(tmp_path, "record", "tune-longer", "export") == ["tune-longer", "export"]
    assert ran(tmp_path, "record", "tune-longer", "export") == []


def test_what_had_nothing_to_do_is_noted_and_what_failed_is_not(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(STEP)
    refused = ("step", "validate", "refused")
    assert Steps(tmp_path).run(*refused, may_be_refused_for=["has no finals"]) is None
    assert Steps(tmp_path).run(*refused) is None
    with pytest.raises(SystemExit, match="has no finals"):
        Steps(tmp_path).run("step", "compare", "refused")
    assert "compare" not in (tmp_path / "commands.json").read_text()


def test_a_result_of_a_cpu_names_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from examples.in_a_model import write

    write({}, Namespace(device="cpu", dtype="float32", out=tmp_path / "out.json"))
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["device"] == DEVICES["cpu"].choose(Wishes()).device.name
    assert where(found).startswith(f"{found['device']}, ")
    assert where(found | {"device": "cpu"}).startswith("a CPU, ")
