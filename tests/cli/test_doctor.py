"""`autotuner doctor`: its table of parameters, and what it says of the cage."""

import json
from pathlib import Path

import pytest
import typer

from autotuner.cli import space
from autotuner.devices import DEVICES
from autotuner.devices.kind import Cage
from autotuner.forge import landlock
from autotuner.run import cage
from autotuner.views.space_tables import cage_lines

SPACE = """
title = "one block, with and without a use of it"
family = "rows"
backend = "cpu"
threads = 1
problems = [{ batch = 1, heads = 1, seq_q = 64, seq_k = 64, head_dim = 64, dtype = "float32" }]

[parameters]
IMPL = ["plain"]
BLOCK_N = [16, 32]
ROWS = [4]
EXP = ["libm"]

[default]
IMPL = "plain"
BLOCK_N = 16
ROWS = 4
EXP = "libm"
"""


def test_the_lines_of_the_cage_name_each_wall_that_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cage_lines([]) == ["The cage around variants is whole on this machine."]
    monkeypatch.setattr(landlock, "version", lambda: 0)
    lines = cage_lines(cage.missing(Cage(memory=False)))
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == ["files", "memory"]
    assert all(line.startswith("The cage around variants lacks a wall here: ") for line in lines)


@pytest.mark.slow
def test_the_doctor_says_what_the_cage_lacks_in_words_and_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    family = Path(__file__).parent.parent.parent / "examples" / "own_kernel" / "rows"
    (tmp_path / "rows").symlink_to(family)
    (tmp_path / "space.toml").write_text(SPACE)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    walls = DEVICES["cpu"].cage

    def said(as_json: bool) -> str:
        try:
            space.doctor(str(tmp_path / "space.toml"), seed=0, as_json=as_json)
        except typer.Exit:
            pytest.fail("a parameter is dead")
        return capsys.readouterr().out

    text = " ".join(said(False).split())
    for line in ["1 parameters, none dead.", *cage_lines(cage.missing(walls))]:
        assert line in text
    document = json.loads(said(True))
    assert [(each["parameter"], each["state"]) for each in document["parameters"]] == [("BLOCK_N", "alive")]
    assert document["cage"] == {"has": cage.summary(walls), "lacks": cage.missing(walls)}
    assert document["cage"]["lacks"][0].startswith("files: ")
