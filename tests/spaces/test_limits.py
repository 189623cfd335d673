"""Limits of a kernel family in a space: what is added, where it binds, and how it reads."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from autotuner.spaces.limits import Limits
from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.errors import KernelError, SpaceError
from autotuner.views.space_tables import space_document, space_shown
from tests.helpers.files import refusals, text
from tests.helpers.limited import LIMITS, TEXT, rule

FACTS = {"THREADS_ALLOWED": 1}


def file_of(text: str = TEXT, limits: Limits = LIMITS) -> SpaceFile:
    return SpaceFile.parse(text, "dir/x.toml", lambda family, device, near: limits)


def space_of(text: str = TEXT, limits: Limits = LIMITS) -> Space:
    return Space.enumerate(file_of(text, limits), FACTS)


WRITTEN = text("limits_written_out.toml")


def test_a_space_with_limits_is_that_with_everything_written_out() -> None:
    found, written = space_of(), Space.enumerate(SpaceFile.parse(WRITTEN), FACTS)
    assert found.digest == written.digest
    np.testing.assert_array_equal(found.rows, written.rows)


def test_a_limit_binds_where_its_implementation_is_chosen() -> None:
    points = [space_of().point(index) for index in range(len(space_of()))]
    assert {point["BLOCK"] for point in points if point["IMPL"] == "wide"} == {8, 16}
    assert {point["BLOCK"] for point in points if point["IMPL"] == "split"} == {8, 16, 32}
    assert {(point["BLOCK"], point["WIDTH"]) for point in points if point["IMPL"] == "wide"} == {
        (8, 4),
        (16, 4),
        (16, 8),
    }


def test_a_branch_has_the_parameters_that_its_implementation_reads() -> None:
    found = {each.impl: list(each.parameters) for each in file_of().branches}
    assert found == {"plain": ["BLOCK"], "wide": ["BLOCK", "WIDTH"], "split": ["BLOCK", "WIDTH", "PARTS"]}


def test_values_are_those_of_the_file_of_its_table_of_the_branch_or_else_of_the_family() -> None:
    reads = {**LIMITS.parameters, "wide": {"BLOCK": (8, 16), "WIDTH": (2, 4)}}
    limits = LIMITS.model_copy(update={"parameters": reads, "defaults": {"wide": {"WIDTH": 4}}})
    plain = (
        TEXT.replace("WIDTH = [4, 8, 16]\n", "").replace('"wide", "split"]', '"wide"]').replace("PARTS = [1, 2, 4]", "")
    )
    wide = file_of(plain, limits).branch("wide")
    assert wide.parameters == {"BLOCK": (8, 16, 32, 64), "WIDTH": (2, 4)}
    assert wide.default == {"BLOCK": 8, "WIDTH": 4}
    own = plain.replace("[[constraints]]", "[parameters.wide]\nWIDTH = [16]\n[[constraints]]")
    assert file_of(own, limits).branch("wide").parameters["WIDTH"] == (16,)


def test_a_file_that_names_no_implementation_has_all_that_serve_the_problem() -> None:
    values = {name: dict.fromkeys(reads, (8, 16)) for name, reads in LIMITS.parameters.items()}
    served = {"split": {"dtypes": rule('DTYPE in ["float16"]', "its sources have dtype float16")}}
    limits = LIMITS.model_copy(update={"parameters": values, "served": served})
    text = TEXT[: TEXT.index("[parameters]")]
    space = space_of(text, limits)
    assert [branch.impl for branch in space.branches] == ["plain", "wide", "odd"]
    assert space.left_out == {"split": "its sources have dtype float16 (cpu.split.dtypes of tiles)"}


def test_limits_of_implementations_that_the_space_has_not_are_left_out() -> None:
    file = file_of(TEXT.replace('["plain", "wide", "split"]', '["plain", "split"]'))
    split = file.branch("split")
    places = ["constraints[0]", "cpu.constraints[0] of tiles", "cpu.split.constraints[0] of tiles"]
    assert [each.place for each in split.constraints] == places
    assert (list(split.amounts), split.derived, list(split.expected_latency)) == (["TWICE"], {}, ["STEP", "TIME"])


@pytest.mark.parametrize(("old", "new", "message"), refusals("together"))
def test_what_does_not_go_together_is_one_line(old: str, new: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        file_of(TEXT.replace(old, new))
    assert str(caught.value).startswith("dir/x.toml: ")
    assert "\n" not in str(caught.value)
    assert message in str(caught.value)


def test_what_is_wrong_with_the_file_comes_before_a_family_that_is_not_there() -> None:
    def missing(family: str, device: str, near: Path) -> Limits:
        raise KernelError(f"no kernel family {family!r} for {device} near {near.name}")

    with pytest.raises(KernelError, match="no kernel family 'tiles' for cpu near dir"):
        SpaceFile.parse(TEXT, "dir/x.toml", missing)
    with pytest.raises(SpaceError, match="titel: unknown key"):
        SpaceFile.parse(TEXT.replace("title", "titel"), "dir/x.toml", missing)


def test_show_says_where_each_constraint_comes_from() -> None:
    served = {"wide": {"dtypes": rule('DTYPE in ["float32"]', "its sources have dtype float32")}}
    space = space_of(limits=LIMITS.model_copy(update={"served": served}))
    found = space_document(space)["constraints"]
    assert {(each["impl"], each["place"]) for each in found if each["impl"] == "wide"} == {
        ("wide", "cpu.wide.dtypes of tiles"),
        ("wide", "constraints[0]"),
        ("wide", "cpu.constraints[0] of tiles"),
        ("wide", "cpu.wide.constraints[0] of tiles"),
        ("wide", "cpu.wide.constraints[1] of tiles"),
    }
    printed = StringIO()
    Console(width=200, file=printed).print(space_shown(space, 200))
    lines = printed.getvalue().splitlines()
    assert len([line for line in lines if "a choice of this search" in line and "space file" in line]) == 3
    assert [line.split()[2] for line in lines if "two rows at least" in line] == ["cpu.wide"]
    assert [line.split()[2] for line in lines if "its sources have" in line] == ["cpu.wide"]
    assert any(line.split()[1:3] == ["TWICE", "2"] for line in lines)
