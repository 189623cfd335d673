"""Kernels of before beside these: which points are asked for, and what the page says of a run."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values import config
from autotuner.values.variant import Variant
from benchmarks.attention import old_and_new
from benchmarks.attention.interleaved import spread
from benchmarks.attention.old_and_new import fastest, graphs_of, row_or_reason, tuned
from benchmarks.attention.old_and_new_pages import apart, decides, over
from benchmarks.attention.old_and_new_pages import old_and_new as page
from benchmarks.pages import loaded

H200 = "NVIDIA H200"


def test_what_is_asked_for_is_what_these_kernels_take() -> None:
    """Where an implementation gets a parameter, the points of before have no value for it."""
    family = Family.load(config.kernels_dir() / "sdpa")
    asked = [*tuned(H200), *fastest()]
    assert {each["impl"] for each in asked} == {"scalar", "cublas", "wmma", "mma", "wgmma"}
    for each in asked:
        variant = Variant(family="sdpa", backend="cuda", impl=each["impl"], parameters=each["parameters"])
        family.admit(variant, SdpaProblem.parse(each["problem"]))
        assert {*each["parameters"]} == {*family.implementation("cuda", each["impl"]).parameters}, each


def test_a_problem_has_the_winner_of_this_kind_of_device_where_there_is_one() -> None:
    rows = loaded("tuned_wgmma")[0]["rows"]
    here = {row["problem"]: row["parameters"] for row in rows if row["device"] == H200}
    chosen = {each["problem"]: {"IMPL": each["impl"], **each["parameters"]} for each in tuned(H200)}
    assert {*chosen} == {row["problem"] for row in rows}
    assert {problem: chosen[problem] for problem in here} == here


def test_both_sides_have_as_many_graphs_in_turn() -> None:
    def old(_: int) -> object:
        return None

    def new(_: int) -> object:
        return None

    both = [*graphs_of({"old": old, "new": new}, 2).items()]
    assert both == [("old 0", old), ("new 0", new), ("old 1", old), ("new 1", new)]


def test_a_point_that_has_no_row_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Built:
        program_hash: str

        def __init__(self, program: str) -> None:
            self.program_hash = program

    def refused(*_: object) -> None:
        raise RuntimeError("status 2\nmore")

    monkeypatch.setattr(old_and_new, "compared", refused)
    one, other = (Built(program) for program in "ab")

    def reason(old: Any, new: Any) -> object:
        return row_or_reason({}, old, new, 3, 2)

    assert reason("ptxas failed", one) == "the old checkout does not build it: ptxas failed"
    assert reason(one, "too many registers") == "it is not built: too many registers"
    assert reason(one, one) == "the same program"
    assert reason(one, other) == "it does not run: status 2"


def state(**us: list[float]) -> dict[str, Any]:
    """A race with these microseconds in each round, as the program writes it."""
    return {"us": {name.replace("_", " "): spread(each) for name, each in us.items()}}


def test_a_ratio_is_over_the_mean_of_the_old_graphs() -> None:
    """A first graph that happens to be quick makes the new kernel look slow, and the same kernel too."""
    found = state(old_0=[2.0] * 3, old_1=[2.0808] * 3, new_0=[2.088] * 3)
    assert over(found) == pytest.approx(1.0235, abs=1e-4)
    assert apart(found) == pytest.approx(1.0404)
    assert not decides(found)
    sure = state(old_0=[2.0] * 3, old_1=[2.002] * 3, new_0=[2.031] * 3, new_1=[2.029] * 3)
    assert over(sure) == pytest.approx(1.0145, abs=1e-4)
    assert decides(sure)
    assert not decides(state(old_0=[2.0] * 3, new_0=[2.0] * 3))
    assert not decides(state(old_0=[2.0] * 3, old_1=[2.0] * 3, new_0=[2.0] * 3, new_1=[2.1] * 3))


def test_the_page_brackets_what_a_run_cannot_decide_and_names_what_is_slower() -> None:
    unsure = state(old_0=[2.0] * 3, old_1=[2.08] * 3, new_0=[2.08] * 3)
    slower, same = (state(old_0=[2.0] * 3, old_1=[2.0] * 3, new_0=[us] * 3) for us in (2.04, 2.0))
    row = {"impl": "wmma", "same_bits": True}
    rows = [
        {**row, "problem": "a", "warm": unsure, "cold": same},
        {**row, "problem": "b", "warm": slower, "cold": same, "same_bits": False},
    ]
    left = {"problem": "c", "impl": "cublas", "reason": "it does not run: status 2"}
    said = page({"device": "one", "torch": "2", "command": "x", "left_out": [left], "shapes": rows}, None)
    assert "1 of 2 give the same bits" in said
    assert "Left out: 1 of cublas: it does not run: status 2." in said
    assert "cannot decide within 1 % on 1 of 4 ratios" in said
    assert "Of the others 1 are above 1.01." in said
    assert page(None) == "Not measured yet."
