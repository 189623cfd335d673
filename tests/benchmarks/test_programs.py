"""The programs of benchmarks/: they start, and what takes no device gives a result."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "\nif __name__ == " in path.read_text()
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
