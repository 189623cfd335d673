"""The second op is folders and files of its own: in a copy of this tree without them, all else holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

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


def test_the_copy_is_what_is_imported_and_the_op_is_gone(without: Path) -> None:
    said = run(without, sys.executable, "-c", "import autotuner.ops as ops; print(ops.__file__, [*ops.OPS])")
    assert said.split()[0].startswith(str(without))
    assert "sdpa" in said
    assert "rmsnorm" not in said


def test_contracts_hold_and_programs_are_made(without: Path) -> None:
    run(without, str(Path(sys.executable).parent / "lint-imports"), "--no-cache")
    run(without, sys.executable, "-c", IMPORT_ALL)


def test_all_that_tests_import_is_there_and_the_first_to_break_pass(without: Path) -> None:
    missing = [
        (path.name, module)
        for path in (without / "tests").rglob("*.py")
        for module in IMPORTED.findall(path.read_text())
        if not any((without / f"{module.replace('.', '/')}{suffix}").exists() for suffix in ("", ".py"))
    ]
    assert missing == []
    files = [f"tests/{name}" for name in FIRST_TO_BREAK]
    named = f"not ({' or '.join(NAMING)})"
    run(without, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", named)
