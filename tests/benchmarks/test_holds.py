"""Programs whose exit code says that something holds, where they have measured nothing of it."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import holds
from tests.emulator.emulator import cuda_include


def test_nothing_and_less_than_was_asked_for_do_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    holds.measured(["a", "b"], "mutant", ["b"])
    for found, asked, told in (([], [], "no mutant was measured"), (["a"], ["a", "c"], "mutant c: there is none")):
        with pytest.raises(SystemExit):
            holds.measured(found, "mutant", asked)
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("gate.view_mutants", ["no_such_view", "--json", "OUT"]),
        ("gate.op_mutants", ["OUT", "--op", "rmsnorm", "--name", "no_such_mutant"]),
        ("gate.mutants", ["OUT", "--only", "right", "--dtype", "nonsense", "--hold"]),
        ("timing.aa_sweeps", ["cpu", "--sweeps", "0", "--json", "OUT"]),
        ("timing.simulated_truth", ["--sweeps", "0", "--json", "OUT"]),
        pytest.param(
            "gate.emulated",
            ["--name", "no_such_mutant", "--json", "OUT"],
            marks=pytest.mark.skipif(cuda_include() is None, reason="needs the headers of CUDA"),
        ),
    ],
    ids=["views", "ops", "mutants", "nobody", "truth", "emulated"],
)
def test_a_program_that_has_nothing_to_measure_fails_and_writes_over_nothing(
    program: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text('{"cpu": {"right": 1}}')
    monkeypatch.setattr(sys, "argv", ["program", *(str(kept) if word == "OUT" else word for word in words)])
    with pytest.raises(SystemExit) as ended:
        import_module(f"benchmarks.{program}").main()
    assert ended.value.code == 1
    assert kept.read_text() == '{"cpu": {"right": 1}}'
