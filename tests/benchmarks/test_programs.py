"""The programs of benchmarks/: they start, and what takes no device gives a result."""

import runpy
import subprocess
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
@pytest.mark.sampled(25)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


LANDSCAPE = "docs/results/landscapes/sdpa_small.json.gz"
SMALL = {
    "gate.cross_version": "docs/results/mutants_cpu.json docs/results/mutants_cpu.json --json OUT",
    "search.branches": "--seeds 1 --json OUT",
    "search.landscapes": f"summary {LANDSCAPE}",
    "search.proposals": "--trials 33 --json OUT",
    "search.replay": f"{LANDSCAPE} --seeds 1 --jobs 1 --json OUT",
    "throughput.cage_cost": "--processes 1 --rounds 1 --json OUT",
    "throughput.figures": "--trials 50 --json OUT",
    "throughput.rates": "store --trials 20 --json OUT",
    "throughput.space_enumeration": "--json OUT",
}
"""Programs that time no variant, with words that ask for little."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SMALL)
def test_a_program_that_is_asked_for_little_gives_it(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = SMALL[name].replace("OUT", str(out)).split()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert out.exists() or done.stdout
