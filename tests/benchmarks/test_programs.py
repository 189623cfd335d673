"""The programs of benchmarks/: they start, their exit codes mean something, and what they keep is whole."""

import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.emulator.emulator import cuda_include

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "ArgumentParser(" in (text := path.read_text()) and "\nif __name__ == " in text
)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


# Programs whose exit code says that something holds -------------------------------------------------------------------


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
