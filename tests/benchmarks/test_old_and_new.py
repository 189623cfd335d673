"""Kernels of before beside these: which points are asked for, and what the page says of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values import config
from autotuner.values.variant import Variant
from benchmarks.attention import old_and_new
from benchmarks.attention.old_and_new import asked_for, builds_of, graphs_of, over_old, row_or_reason
from benchmarks.attention.old_and_new_pages import apart, decides, over
from benchmarks.attention.old_and_new_pages import old_and_new as page
from benchmarks.attention.old_and_new_pages import same_code as same_code_part
from benchmarks.attention.same_code import machine_code, same
from benchmarks.pages import loaded
from benchmarks.provenance import ROOT

IMPLS = ["scalar", "cublas", "wmma", "mma"]
SHAPES = 16


def test_every_implementation_has_a_point_at_every_dense_shape() -> None:
    asked = asked_for(IMPLS, [])
    assert len(asked) == SHAPES * len(IMPLS)
    assert {each["impl"] for each in asked} == {*IMPLS}
    assert [each["impl"] for each in asked_for(IMPLS, ["(1,8,512,64) float16 full"])] == IMPLS
    assert asked_for(["wgmma"], []) == []


def test_what_is_asked_for_is_what_these_kernels_take() -> None:
    """Where an implementation gets a parameter, the points of before have no value for it."""
    family = Family.load(config.kernels_dir() / "sdpa")
    for each in asked_for(IMPLS, []):
        variant = Variant(family="sdpa", backend="cuda", impl=each["impl"], parameters=each["parameters"])
        family.admit(variant, SdpaProblem.parse(each["problem"]))
        assert {*each["parameters"]} == {*family.implementation("cuda", each["impl"]).parameters}, each


def test_both_sides_have_as_many_graphs_in_turn() -> None:
    def old(_: int) -> object:
        return None

    def new(_: int) -> object:
        return None

    three = graphs_of({"old": old, "new": new}, 3)
    assert [*three.items()] == [
        *(("old", old), ("new", new), ("again", old), ("new again", new)),
        *(("again 2", old), ("new again 2", new)),
    ]
    assert [*graphs_of({"old": old, "new": new}, 1)] == ["old", "new"]


def test_a_point_that_a_checkout_does_not_build_has_a_reason() -> None:
    (each,) = asked_for(["mma"], ["(1,8,512,64) float16 full"])
    fault: Any = "compile_error: too many registers"
    assert row_or_reason(each, (None, "ptxas failed"), fault, None, 3, 2) == (
        "the old checkout does not build it: ptxas failed"
    )
    assert row_or_reason(each, ("name", "path"), fault, None, 3, 2) == f"it is not built: {fault}"


def test_a_side_that_refuses_to_run_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("status 2\nmore")

    monkeypatch.setattr(old_and_new, "compared", refused)
    monkeypatch.setattr(old_and_new, "Artifact", str)
    assert row_or_reason({}, ("name", "path"), "built", None, 3, 2) == "it does not run: status 2"  # type: ignore[arg-type]


def state(**us: list[float]) -> dict[str, Any]:
    """A race with these microseconds in each round, as the program writes it."""
    return over_old({name.replace("_", " "): each for name, each in us.items()})


def test_a_ratio_is_over_the_mean_of_the_old_graphs() -> None:
    """A first graph that happens to be quick makes the new kernel look slow, and the same kernel too."""
    found = state(old=[2.0] * 3, again=[2.0808] * 3, new=[2.088] * 3)
    assert found["new_over_old"]["median"] == pytest.approx(1.044)
    assert over(found) == pytest.approx(1.0235, abs=1e-4)
    assert apart(found) == pytest.approx(1.0404)
    assert not decides(found)
    sure = state(old=[2.0] * 3, again=[2.002] * 3, new=[2.031] * 3, new_again=[2.029] * 3)
    assert over(sure) == pytest.approx(1.0145, abs=1e-4)
    assert decides(sure)
    assert not decides(state(old=[2.0] * 3, new=[2.0] * 3))
    assert not decides(state(old=[2.0] * 3, again=[2.0] * 3, new=[2.0] * 3, new_again=[2.1] * 3))


def test_the_page_brackets_what_a_run_cannot_decide_and_names_what_is_slower() -> None:
    unsure = state(old=[2.0] * 3, again=[2.08] * 3, new=[2.08] * 3)
    slower, same = (state(old=[2.0] * 3, again=[2.0] * 3, new=[us] * 3) for us in (2.04, 2.0))
    row = {"impl": "wmma", "same_bits": True}
    rows = [
        {**row, "problem": "a", "warm": unsure, "cold": same},
        {**row, "problem": "b", "warm": slower, "cold": same, "same_bits": False},
    ]
    left = {"problem": "c", "impl": "cublas", "reason": "it does not run: status 2"}
    said = page({"device": "one", "torch": "2", "command": "x", "left_out": [left], "shapes": rows}, None)
    assert "| a, wmma | (1.020) | 4.0 % | 1.000 | 0.0 % |" in said
    assert "| b, wmma | 1.020 | 0.0 % | 1.000 | 0.0 % |" in said
    assert "1 of 2 give the same bits" in said
    assert "Left out: cublas at c: it does not run: status 2." in said
    assert "farther from each other: 1 of 4. Of the others 1 are above 1.01: b, wmma at 1.020 warm." in said


def test_the_kept_runs_are_drawn() -> None:
    runs = loaded("old_and_new")
    said = page(*runs)
    assert "| (1,4,128,64) float16 full, mma | (" in said
    assert page(None) == "Not measured yet."
    tuned = json.loads(json.dumps(runs[0]))
    tuned["shapes"][0]["warm"]["us"]["tuned"] = tuned["shapes"][0]["warm"]["us"]["old"]
    assert "tuned, warm" in page(tuned)


def test_the_old_checkout_is_asked_for_the_same_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program that runs there, with its own package first."""
    package = tmp_path / "autotuner"
    for room in ("build", "ops/sdpa", "tuning", "values"):
        (package / room).mkdir(parents=True)
        for folder in (package / room, *(package / room).parents):
            if folder.is_relative_to(package):
                (folder / "__init__.py").touch()
    (package / "build" / "build.py").write_text(
        "from types import SimpleNamespace\n"
        "def build(family, variant, problem, toolchain):\n"
        "    if variant['impl'] == 'cublas':\n"
        "        return 'no cuBLAS here'\n"
        "    if variant['impl'] == 'mma':\n"
        "        raise RuntimeError('no compiler')\n"
        "    return SimpleNamespace(name=variant['impl'] + problem, path='/x/' + str(variant['parameters']['A']))\n"
    )
    (package / "build" / "family.py").write_text("class Family:\n    load = staticmethod(lambda path: path)\n")
    (package / "ops" / "sdpa" / "problem.py").write_text("class SdpaProblem:\n    parse = staticmethod(str)\n")
    (package / "tuning" / "workbench.py").write_text(
        "from types import SimpleNamespace\n"
        "load_space = str\n"
        "def Workbench(space):\n"
        "    return SimpleNamespace(toolchain=None)\n"
    )
    (package / "values" / "config.py").write_text("from pathlib import Path\nkernels_dir = Path\n")
    (package / "values" / "variant.py").write_text("Variant = dict\n")
    asked = [{"impl": impl, "problem": "p", "parameters": {"A": 1}} for impl in ("scalar", "cublas", "mma")]
    found = builds_of(tmp_path, asked)
    assert found == [("scalarp", "/x/1"), (None, "no cuBLAS here"), (None, "no compiler")]


def test_machine_code_is_compared_to_the_byte() -> None:
    points = [each for each in asked_for(["scalar"], ["(1,2,64,64)"]) if "full" in each["problem"]]
    other = {**points[0], "problem": "(1,2,64,64) float16 causal"}
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    here = builds_of(ROOT, [*points, other], "sm_90")
    assert same(here[0], here[0])
    assert same(here[0], here[1]) is False
    assert same((None, "why not"), here[0]) is None
    with pytest.raises(ValueError, match="no cubin"):
        machine_code(b"none")


def test_the_page_counts_the_points_whose_machine_code_is_the_same() -> None:
    rows = [{"impl": "mma", "same_code": each} for each in (True, False, None)]
    said = same_code_part({"command": "python -m it", "architecture": "sm_90", "rows": rows})
    assert "1 of 2 of `mma`" in said
    assert same_code_part(None) == page(None)
