"""The built wheel, installed in a fresh environment elsewhere, finds its kernels and spaces and tunes."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it may name this tree
    env = {**inherited, **environment}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    quietly = ("--quiet", "--no-deps", "--no-build-isolation")
    run(sys.executable, "-m", "pip", "wheel", *quietly, "-w", folder, ROOT, cwd=folder)
    (found,) = folder.glob("kernel_autotuner-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_kernels_and_spaces(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "_shipped/kernels/sdpa/kernel.toml",
        "_shipped/kernels/abi/variant.h",
        "_shipped/kernels/sdpa/abi/launch.cpp",
        "_shipped/kernels/sdpa/limits.toml",
        "_shipped/search_spaces/sdpa_cpu.toml",
    ):
        assert f"autotuner/{wanted}" in names
    assert "autotuner/py.typed" in names
    assert not any(name.startswith(("tests/", "kernels/")) for name in names)


@pytest.mark.timed
@pytest.mark.slow
def test_the_wheel_tunes_elsewhere(wheel: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False)
    python = fresh / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    (site,) = fresh.glob("lib/python*/site-packages")
    # the dependencies are borrowed, to spare a second download; a plain path does not bring our editable install along
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    home = tmp_path / "home"
    home.mkdir()
    where = run(python, "-c", "import autotuner.values.config as c; print(c.kernels_dir())", cwd=home).strip()
    assert where.startswith(str(site))

    def tune(*arguments: str) -> str:
        return run(fresh / "bin" / "autotuner", "tune", *arguments, cwd=home, AUTOTUNER_CACHE=str(tmp_path / "cache"))

    # one thread: beside other tests two would wait for each other; in less than two minutes no baseline is compiled
    short = ("--trials", "1", "--threads", "1", "--minutes", "1.9", "--no-finals")
    assert "[1/1]" in tune("--problem", "(1,2,64,64) float32", *short)
    assert json.loads((home / "best.json").read_text())["family"] == "sdpa"
    assert (home / "studies.db").exists()
