"""How the tests themselves are run: what a run takes, turns, timed tests on a busy machine, the layout."""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers import turns

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent.parent
FILES = sorted(path for folder in ("autotuner", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


# What a run takes ---------------------------------------------------------------------------------------------------


def item(name: str, *mark: object, **more: object) -> Any:
    """A test, with that mark of a sample if there is one."""
    marks = {"sampled": SimpleNamespace(args=mark, kwargs=more)} if mark else {}
    return SimpleNamespace(nodeid=name, get_closest_marker=marks.get)


def test_of_each_name_its_count_runs_the_same_in_every_run() -> None:
    usual = [item(f"a.py::usual[{n}]") for n in range(3)]
    named = [item(f"a.py::named[{name}-{n}]", 1, name) for name in "xyz" for n in range(4)]
    unnamed = [item(f"a.py::unnamed[{n}]", 2) for n in range(9)]
    every = [*usual, *named, *unnamed]

    def run() -> list[str]:
        out = turns.left_out(every)
        return [each.nodeid for each in every if each not in out]

    assert run() == run()
    assert {name.split("[")[1][0] for name in run() if "::named" in name} == set("xyz")
    assert Counter(name.split("[")[0] for name in run()) == {"a.py::usual": 3, "a.py::named": 3, "a.py::unnamed": 2}


# Turns --------------------------------------------------------------------------------------------------------------

CONFTEST = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
from tests import conftest
from tests.helpers import turns
turns.is_quiet = lambda: not Path("busy").exists()
conftest.TURNS = turns.Turns(Path(__file__), Path("pytest.ini"))
from tests.conftest import pytest_collection_modifyitems, pytest_runtest_makereport
from tests.conftest import pytest_runtest_setup, pytest_runtest_teardown
def pytest_addoption(parser):
    parser.addoption("--all", action="store_true")
"""
MARKERS = "[pytest]\nmarkers =\n alone: x\n timed: x\n sampled: x\n gpu: x\n slow: x\nfilterwarnings = error\n"


TIMED = """
import pytest
from pathlib import Path

@pytest.mark.timed
@pytest.mark.parametrize("passes_at", (0, 2, 9))
@pytest.mark.parametrize("machine", ("quiet", "busy"))
def test_it(machine, passes_at):
    Path(machine).touch()
    tries = len(list(Path().glob(f"{machine}.{passes_at}.try*")))
    Path(f"{machine}.{passes_at}.try{tries}").touch()
    assert tries >= passes_at
"""


@pytest.mark.slow
def test_a_timed_test_that_fails_is_tried_again_at_last_alone_and_skipped_only_on_a_busy_machine(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(CONFTEST)
    (pytester.path / "pytest.ini").write_text(MARKERS)
    pytester.makepyfile(TIMED)
    found = pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider", "-p", "no:schemathesis")
    assert found.parseoutcomes().items() >= {"passed": 3, "failed": 1, "skipped": 2}.items()
    for machine, tries in (("quiet", [1, 3, 3]), ("busy", [1, 2, 2])):
        assert [len([*pytester.path.glob(f"{machine}.{at}.try*")]) for at in (0, 2, 9)] == tries
    found.stdout.fnmatch_lines("*busy with something else, and beside others it failed: *assert 1 >= 2*")


# The layout ---------------------------------------------------------------------------------------------------------


def test_every_file_fits_on_a_few_screens() -> None:
    assert [path for path in FILES if len(path.read_text().splitlines()) > 500] == []


def test_no_file_imports_a_test_module() -> None:
    """What several tests use lies in tests/helpers."""
    assert [path for path in FILES if re.search(r"^ *(from|import) .*\btest_", path.read_text(), re.MULTILINE)] == []
