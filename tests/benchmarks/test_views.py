"""Views beside dense tensors: what is built for which problem, what is made of a race, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs
from autotuner.spaces.space import Space
from autotuner.tuning.workbench import choose_device, load_space
from autotuner.values.variant import Value
from benchmarks.attention import views as program
from benchmarks.attention import views_pages
from benchmarks.attention.interleaved import input_sets
from benchmarks.attention.views import (
    COPIES,
    DENSE,
    SAME,
    SHAPES,
    SPACES,
    VIEWS,
    copying,
    figures,
    merged,
    of_views,
    on_views,
    points_in,
    sides_of,
    winners,
)

TEXT = SHAPES[0]
POINT: dict[str, Value] = {"IMPL": "mma", "BLOCK_N": 32}
OTHER: dict[str, Value] = {"IMPL": "mma", "BLOCK_N": 64}


def row(**more: Any) -> dict[str, Any]:
    """A row as the program writes it."""
    cold = {"cudnn": 9.0, "flash": 12.0, "cudnn on views": 10.0, "flash on views": 9.5}
    cold |= {DENSE: 4.5, SAME: 5.0, VIEWS: 4.75, COPIES: 7.0}
    warm = {name: us for name, us in cold.items() if name != VIEWS}
    states = {
        name: figures({side: [us] * 3 for side, us in of.items()}) for name, of in (("cold", cold), ("warm", warm))
    }
    made = {"device": "one", "torch": "2", "command": "x", "left_out": {}, "sweeps": []}
    return {"problem": TEXT, "points": {TEXT: POINT, of_views(TEXT): OTHER}, **made, **states, **more}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"shapes": rows}))
    return path


@pytest.mark.parametrize("text", SHAPES)
def test_each_shape_has_points_on_both_layouts(text: str) -> None:
    """And those of the dense layout are points of views too, so that the same parameters are compiled for both."""
    assert str(SdpaProblem.parse(of_views(text))) == of_views(text)
    assert SdpaProblem.parse(of_views(text)).layout == "bshd"
    assert SdpaProblem.parse(text).layout == "bhsd"
    found = [load_space(SPACES[text], problems=[each]) for each in (text, of_views(text))]
    dense, viewed = (Space.enumerate(each, choose_device(each, "sm_90").device.facts) for each in found)
    assert len(dense) > 1000
    assert {*dense.values["IMPL"]} == ({"mma"} if text == TEXT else {"wgmma"})
    for place in range(0, len(dense), 97):
        assert viewed.index_of(dense.point(place)) is not None


def test_the_dense_winner_is_compiled_for_both_layouts() -> None:
    points = {TEXT: POINT, of_views(TEXT): OTHER}
    sides = sides_of(TEXT, points)
    assert sides == {DENSE: (TEXT, POINT), SAME: (of_views(TEXT), POINT), VIEWS: (of_views(TEXT), OTHER)}


def test_what_was_swept_is_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, int, float, bool]] = []

    def swept(wanted: Any, text: str, store: Path, options: Any) -> dict[str, Any]:
        asked.append((wanted.space, text, options.trials, options.finals_minutes, options.warm))
        assert not store.exists()
        told = dict.fromkeys(("trials", "judged", "seconds", "confirmed", "search_estimate", "us", "baseline_us"), 1)
        return {"problem": text, "parameters": POINT if text == TEXT else OTHER, **told}

    monkeypatch.setattr(program, "tuned", swept)
    points, sweeps = winners(TEXT, 12, 0.3)
    assert points == {TEXT: POINT, of_views(TEXT): OTHER}
    assert asked == [("sdpa_sm90", each, 12, 0.3, False) for each in (TEXT, of_views(TEXT))]
    assert [each["problem"] for each in sweeps] == [TEXT, of_views(TEXT)]
    monkeypatch.setattr(program, "tuned", lambda *_: {"problem": TEXT, "error": "no GPU"})
    with pytest.raises(SystemExit, match="no GPU"):
        winners(TEXT, 12, 0.3)


def test_points_of_an_earlier_run_are_taken(tmp_path: Path) -> None:
    path = written(tmp_path / "one.json", row())
    assert points_in(path, [TEXT]) == {TEXT: POINT, of_views(TEXT): OTHER}
    with pytest.raises(SystemExit, match="has no point of"):
        points_in(path, SHAPES[:2])


def test_rows_of_several_runs_are_one_file(tmp_path: Path) -> None:
    """Those of one shape and kind of device once, the last of them."""
    first = written(tmp_path / "a.json", row(problem=SHAPES[2]), row())
    second = written(tmp_path / "b.json", row(command="y"), row(problem=SHAPES[1]), row(device="other"))
    found = merged([first, second])["shapes"]
    assert [(each["device"], each["problem"], each["command"]) for each in found] == [
        ("one", SHAPES[0], "y"),
        ("one", SHAPES[1], "x"),
        ("one", SHAPES[2], "x"),
        ("other", SHAPES[0], "x"),
    ]


def test_copies_are_dense_and_what_they_copy_is_not() -> None:
    problem = SdpaProblem.parse("(2,3,16,64) float16 full bshd")
    sets = input_sets(problem, inputs(problem, "randn", 1), cold=False)
    assert not any(tensor.is_contiguous() for tensor in sets[0])
    copies = copying(sets)(0)
    assert isinstance(copies, tuple)
    for copy, tensor in zip(copies, sets[0], strict=True):
        assert copy.is_contiguous()
        assert torch.equal(copy, tensor)


def test_copies_of_several_sets_lie_apart() -> None:
    """Where one set's were written into those of the last, they would be found in the cache."""
    problem = SdpaProblem.parse("(2,3,16,64) float16 full bshd")
    given = inputs(problem, "randn", 1)
    forward = copying([given, given, given])
    for number in (0, 1, 2, 0):
        forward(number)
    places = {copy.data_ptr() for number in range(3) for copy in _copies(forward(number))}
    assert len(places) == 9


def _copies(found: object) -> tuple[torch.Tensor, ...]:
    assert isinstance(found, tuple)
    return found


def test_each_side_is_over_the_backend_on_tensors_that_lie_so() -> None:
    cold = row()["cold"]
    assert cold["baseline"] == {"dense": "cudnn", "views": "flash on views"}
    speedup = {name: found["median"] for name, found in cold["speedup"].items()}
    assert speedup == {DENSE: 2.0, SAME: 1.9, VIEWS: 2.0}
    assert [name for name in (DENSE, SAME, VIEWS, COPIES, "flash", "flash on views") if on_views(name)] == [
        *(SAME, VIEWS, COPIES, "flash on views")
    ]


def test_the_page_shows_both_layouts_and_what_copies_cost() -> None:
    said = views_pages.views({"shapes": [row()]})
    assert f"| {TEXT}, mma | 9.50 (flash) | 4.50 (2.00x) | 4.75 (2.00x) | 11.50 (0.83x) |" in said.splitlines()
    assert "the same parameters on views as dense 0.900, the winner of views as those 1.053, SDPA on views as" in said
    assert f"At {TEXT} the winner of views has BLOCK_N=64 (dense: 32)." in said
    del (found := row())["cold"]["us"][VIEWS]
    assert "| 4.50 (2.00x) |  | 11.50 (0.83x) |" in views_pages.views({"shapes": [found]})  # left out: an empty cell


def test_the_page_says_what_was_left_out_and_where_it_comes_from() -> None:
    rows = [row(left_out={SAME: "it gives a wrong result"}), row(device="other", command="y")]
    rows[1]["points"] = {TEXT: POINT, of_views(TEXT): POINT}
    said = views_pages.views({"shapes": rows})
    assert f"Left out at {TEXT}: {SAME}: it gives a wrong result." in said
    assert "Made by `x` and its like: one, torch 2, other, torch 2." in said
    assert said.count("the winner of views has") == 1  # the other row has one winner
