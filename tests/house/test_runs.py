"""How the tests themselves are run: the rotating sample, timed tests on a busy machine, the last lines, the layout."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import proof
from tests.__main__ import SKIPS, Part, Run, closing, report
from tests.helpers import sample, timed
from tests.helpers.recorder import ALONE, Recorder

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent.parent
FILES = sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


# The rotating sample ------------------------------------------------------------------------------------------------


def item(name: str, *mark: object, **more: object) -> Any:
    """A test, with that rotating mark if there is one."""
    marks = {"rotating": SimpleNamespace(args=mark, kwargs=more)} if mark else {}
    return SimpleNamespace(nodeid=name, get_closest_marker=marks.get)


def test_of_each_name_its_count_runs_the_same_for_a_seed() -> None:
    usual = [item(f"a.py::usual[{n}]") for n in range(3)]
    named = [item(f"a.py::named[{name}-{n}]", 1, name) for name in "xyz" for n in range(4)]
    unnamed = [item(f"a.py::unnamed[{n}]", 2) for n in range(9)]
    every = [*usual, *named, *unnamed]

    def run(seed: str) -> list[str]:
        out = sample.left_out(every, seed)
        return [each.nodeid for each in every if each not in out]

    first = run("2026-01-01")
    assert first == run("2026-01-01")
    assert {name.split("[")[1][0] for name in first if "::named" in name} == set("xyz")
    assert Counter(name.split("[")[0] for name in first) == {"a.py::usual": 3, "a.py::named": 3, "a.py::unnamed": 2}
    assert len({tuple(run(str(day))) for day in range(20)}) > 10
    assert len(run(sample.ALL)) == len(every)


def test_tests_of_several_functions_may_be_one_group() -> None:
    every = [item(f"{name}.py::f", 2, of="whole sweeps") for name in "abcde"]
    assert len(sample.left_out(every, "2026-01-01")) == 3
    assert not sample.left_out(every, sample.ALL)


def test_every_one_has_its_day() -> None:
    every = [item(f"a.py::f[{n}]", 1) for n in range(5)]
    assert {each.nodeid for day in range(60) for each in every if each not in sample.left_out(every, str(day))} == {
        each.nodeid for each in every
    }


def test_tests_for_a_gpu_are_left_out_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(get_closest_marker={"gpu": True}.get)
    usual: Any = item("usual")
    for there in (False, True):
        monkeypatch.setattr(sample, "has_gpu", lambda there=there: there)
        assert sample.without_gpu([usual, gpu]) == ([] if there else [gpu])  # type: ignore[list-item]


# Timed tests --------------------------------------------------------------------------------------------------------

IMPORTED = "from tests.helpers import timed"
TRIES = """
import pytest

@pytest.fixture(scope="{scope}")
def number(request):
    tries = request.config.rootpath / "tries"
    before = tries.read_text()
    tries.write_text(before + "x")
    return len(before)

@pytest.mark.timed
def test_it(number):
    assert number >= {passes_at}
"""


@pytest.mark.parametrize(
    ("passes_at", "busy", "outcome"),
    [(0, True, "passed"), (2, False, "passed"), (2, True, "passed"), (9, False, "failed"), (9, True, "skipped")],
)
@pytest.mark.parametrize("scope", ["function", "module"])
def test_a_timed_test_is_tried_again_and_skipped_only_on_a_busy_machine(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, scope: str, passes_at: int, busy: bool, outcome: str
) -> None:
    """With fixtures made anew, those of its module too."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr(timed, "watch", lambda: lambda: busy)
    found = inner(pytester, passes_at, scope)
    found.assert_outcomes(**{outcome: 1})
    assert len((pytester.path / "tries").read_text()) == min(passes_at + 1, timed.ATTEMPTS)


def test_a_timed_test_that_fails_beside_others_is_put_off(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    inner(pytester, 1).assert_outcomes(skipped=1)
    assert len((pytester.path / "tries").read_text()) == 1


LEAKS = """
import gc, pytest, subprocess

@pytest.mark.timed
def test_it():
    left = [subprocess.Popen(["sleep", "60"])]
    left.append(left)
    assert False

def test_after_it():
    gc.collect()
"""


@pytest.mark.parametrize(("worker", "outcome"), [("gw0", "skipped"), ("", "failed")])
def test_the_next_test_is_not_blamed_for_what_a_failure_left_open(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, worker: str, outcome: str
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    if not worker:
        monkeypatch.delenv("PYTEST_XDIST_WORKER")
    watched = "timed.watch = lambda: lambda: False"
    protocol = "pytest_runtest_protocol = timed.protocol"
    pytester.makeconftest("\n".join([f"import sys; sys.path[:0] = [{str(ROOT)!r}]", IMPORTED, watched, protocol, ""]))
    pytester.makeini("[pytest]\nmarkers = timed: has deadlines\nfilterwarnings = error\n")
    pytester.makepyfile(LEAKS)
    pytester.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=1, **{outcome: 1})


def test_a_mistake_is_never_put_down_to_a_busy_machine() -> None:
    assert timed.is_mistake("NameError: name 'nobody' is not defined")
    assert timed.is_mistake("TypeError: list indices must be integers or slices, not str")
    assert not timed.is_mistake("TypeError: 'NoneType' object is not subscriptable")  # nothing was there yet
    assert not timed.is_mistake("AssertionError: TypeError: of a process")


def inner(pytester: pytest.Pytester, passes_at: int, scope: str = "function") -> pytest.RunResult:
    """A run of one timed test that passes at the `passes_at`-th try."""
    (pytester.path / "tries").write_text("")
    pytester.makeconftest(f"{IMPORTED}\npytest_runtest_protocol = timed.protocol\n")
    pytester.makepyfile(TRIES.format(passes_at=passes_at, scope=scope))
    return pytester.runpytest_inprocess("-p", "no:xdist", "-W", "ignore")


# The last lines -----------------------------------------------------------------------------------------------------


def part(name: str, skipped: int, *, failed: bool = False) -> Part:
    """A part of three tests that passed and some that were skipped."""
    names = {f"{name}::skipped{n}": "needs nvcc" for n in range(skipped)}
    counts = Counter(passed=3, skipped=skipped, failed=int(failed))
    return Part(name, 1.5, failed, {f"{name}::{n}": float(n) for n in range(9)}, counts, names)


def test_what_runs_alone_is_what_was_found_before(tmp_path: Path) -> None:
    """Named, so that nothing else is collected."""
    recorder = Recorder(tmp_path / "record.json")
    recorder.pytest_testnodedown(SimpleNamespace(workeroutput={ALONE: ["a.py::f"]}))
    recorder.pytest_testnodedown(SimpleNamespace())  # one that was lost says nothing
    recorder.pytest_sessionfinish()
    found = json.loads((tmp_path / "record.json").read_text())[ALONE]
    called = []

    class Noted(Run):
        def _pytest(self, name: str, arguments: Sequence[str]) -> None:
            called.append([*arguments])
            self.parts.append(Part(name, alone=found))

    Noted("2026-01-01", tmp_path).tests("fast", "not slow")
    assert [words[1:2] for words in called] == [["not slow and not alone"], ["not slow and alone"]]
    assert called[1][2:] == ["a.py::f"]


def test_the_last_line_is_like_that_of_pytest_over_all_parts() -> None:
    assert closing([part("a", 2), part("b", 0)]).strip("= ") == "6 passed, 2 skipped in 3.00s"
    assert closing([part("a", 0), part("b", 0, failed=True)]).strip("= ") == "1 failed, 6 passed in 3.00s"
    assert closing([Part("lint", 1.0, failed=True)]).strip("= ") == "1 error in 1.00s"


def test_the_end_names_the_slowest_and_what_is_not_proven() -> None:
    few, many = (list(report([part("a", SKIPS + more), part("b", 0)], "today")) for more in (0, 1))
    assert sum("::" in line for line in few) == 10
    assert not any("NOT PROVEN" in line for line in few)
    assert any("NOT PROVEN: 6 tests" in line for line in many)
    assert sum("a::skipped" in line for line in many) == SKIPS + 1
    assert [line.split()[0] for line in few if line.endswith(("  a", "  b"))] == ["1.5", "1.5"]


# The layout ---------------------------------------------------------------------------------------------------------


def imported(path: Path) -> set[str]:
    """The modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def test_every_file_fits_on_a_few_screens() -> None:
    assert [path for path in FILES if len(path.read_text().splitlines()) > 500] == []


def test_no_file_imports_a_test_module() -> None:
    """What several tests use lies in tests/helpers."""
    assert [path for path in FILES if any(".test_" in module for module in imported(path))] == []


def test_every_part_of_the_proof_is_in_the_contributing_page() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert [name for name in proof.PARTS if f"| `{name}` |" not in text] == []


def test_a_part_of_the_proof_keeps_what_it_finds() -> None:
    for name, each in proof.PARTS.items():
        kept = [word for step in each.steps for word in step.arguments if word.startswith("docs/results/")]
        assert len(kept) >= len(each.steps), name
