"""The second op is folders and files of its own: in a copy of this tree without them, all else holds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAMING = ("README", "CHANGELOG", "start", "architecture", "own-op")
"""Pages whose lines name the paths."""
FIRST_TO_BREAK = (
    "house/test_space_files.py",
    "cli/test_messages.py",
    "forge/test_family_limits.py",
    "house/test_docs.py",
)
IMPORTED = re.compile(r"^ *(?:from|import) ((?:autotuner|benchmarks|examples|tests)[.\w]*)", re.MULTILINE)
IMPORT_ALL = """
import importlib, pkgutil, benchmarks
for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
    importlib.import_module(module.name)
"""


def listed() -> list[str]:
    """What docs/reference/architecture.md says the op is."""
    page = (ROOT / "docs" / "reference" / "architecture.md").read_text()
    found = re.search(r"### What the second op showed\n.*?```text\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1].split()


def test_nothing_else_imports_a_module_of_it() -> None:
    places = tuple(listed())
    gone = {place.removesuffix(".py").rstrip("/").replace("/", ".") for place in places}
    others = [path for top in ("autotuner", "benchmarks", "examples", "tests") for path in (ROOT / top).rglob("*.py")]
    left = [path for path in others if not path.relative_to(ROOT).as_posix().startswith(places)]
    assert len(left) > 500
    imported = {(path.name, f"{module}.") for path in left for module in IMPORTED.findall(path.read_text())}
    assert [each for each in imported if each[1].startswith(tuple(f"{module}." for module in gone))] == []


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree without them, its pages drawn anew from the results that are left."""
    folder = tmp_path_factory.mktemp("tree")
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "studies.db*")
    shutil.copytree(ROOT, folder, ignore=unwanted, dirs_exist_ok=True)
    for name in listed():
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run(folder, sys.executable, "-m", "benchmarks.pages")
    return folder


def run(folder: Path, *command: str) -> str:
    """What a command prints that ends well in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.sampled(1, of="whole sweeps")
def test_the_copy_is_what_is_imported_and_the_op_is_gone(without: Path) -> None:
    said = run(without, sys.executable, "-c", "import autotuner.ops as ops; print(ops.__file__, [*ops.OPS])")
    assert said.split()[0].startswith(str(without))
    assert "sdpa" in said
    assert "rmsnorm" not in said


@pytest.mark.slow
@pytest.mark.sampled(1, of="whole sweeps")
def test_contracts_hold_and_programs_are_made(without: Path) -> None:
    run(without, str(Path(sys.executable).parent / "lint-imports"), "--no-cache")
    run(without, sys.executable, "-c", IMPORT_ALL)


@pytest.mark.slow
@pytest.mark.sampled(1, of="whole sweeps")
def test_the_first_to_break_pass(without: Path) -> None:
    files = [f"tests/{name}" for name in FIRST_TO_BREAK]
    named = f"not ({' or '.join(NAMING)})"
    run(without, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", named)
