"""Limits of a kernel family in a space: what is added, where it binds, and how it reads."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from autotuner.spaces.limits import Limits
from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.errors import KernelError, SpaceError
from autotuner.views.space_tables import space_document, space_shown
from tests.helpers.limited import LIMITS, TEXT

FACTS = {"THREADS_ALLOWED": 1}


def file_of(text: str = TEXT, limits: Limits = LIMITS) -> SpaceFile:
    return SpaceFile.parse(text, "dir/x.toml", lambda family, device, near: limits)


def space_of(text: str = TEXT, limits: Limits = LIMITS) -> Space:
    return Space.enumerate(file_of(text, limits), FACTS)


WRITTEN = """
title = "The same, written out"
family = "tiles"
backend = "cpu"
problems = [{ batch = 1, heads = 2, seq_q = 64, seq_k = 64, head_dim = 64, dtype = "float32" }]

[parameters]
IMPL = ["plain", "wide", "split"]
BLOCK = [8, 16, 32, 64]
WIDTH = { values = [4, 8, 16], when = 'IMPL != "plain"' }
PARTS = { values = [1, 2, 4], when = 'IMPL == "split"' }

[[constraints]]
expression = 'BLOCK <= 32 and (IMPL != "wide" or BLOCK != 32)'
reason = "as there"

[[constraints]]
expression = 'IMPL != "wide" or BLOCK // WIDTH >= 2'
reason = "as there"

[derived]
VECTORS = 'ceil_div(SEQ_Q, BLOCK // WIDTH) if IMPL == "wide" else 0'

[expected_latency]
TIME = "1000 // (BLOCK + PARTS)"

[default]
IMPL = "plain"
BLOCK = 8
"""


def test_a_space_with_limits_is_that_with_everything_written_out() -> None:
    found, written = space_of(), Space.enumerate(SpaceFile.parse(WRITTEN), FACTS)
    assert found.digest == written.digest
    np.testing.assert_array_equal(found.rows, written.rows)
    np.testing.assert_array_equal(found.derived, written.derived)
    assert found.expected is not None
    np.testing.assert_array_equal(found.expected, written.expected)


def test_a_limit_binds_where_its_implementation_is_chosen() -> None:
    points = [space_of().point(index) for index in range(len(space_of()))]
    assert {point["BLOCK"] for point in points if point["IMPL"] == "wide"} == {8, 16}
    assert {point["BLOCK"] for point in points if point["IMPL"] == "split"} == {8, 16, 32}
    assert {(point["BLOCK"], point["WIDTH"]) for point in points if point["IMPL"] == "wide"} == {
        (8, 4),
        (16, 4),
        (16, 8),
    }


def test_limits_of_implementations_that_the_space_has_not_are_left_out() -> None:
    file = file_of(TEXT.replace('["plain", "wide", "split"]', '["plain", "split"]'))
    assert [each.place for each in file.constraints] == ["", "cpu.constraints[0]", "cpu.split.constraints[0]"]
    assert (list(file.amounts), file.derived, list(file.expected_latency)) == (["TWICE"], {}, ["STEP", "TIME"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("PARTS = [1, 2, 4]", "", "parameters.PARTS: missing; cpu.split of tiles reads it"),
        ('dtype = "float32"', 'dtype = "float32", op = "sum"', "problems[0]: no op 'sum'; there are rmsnorm, sdpa"),
        (
            "batch = 1, heads = 2, seq_q = 64, seq_k = 64, head_dim = 64",
            'op = "rmsnorm", tokens = 2, hidden_size = 64',
            "problems[0].op: found 'rmsnorm', expected 'sdpa', which the family tiles computes",
        ),
        ("[default]", '[derived]\nVECTORS = "BLOCK"\n[default]', "derived.VECTORS: tiles/limits.toml has one of this"),
        ("[default]", '[amounts]\nROWS = "BLOCK"\n[default]', "amounts.ROWS: tiles/limits.toml has one of this name"),
        ("[default]", '[amounts]\nVECTORS = "BLOCK"\n[default]', "derived.VECTORS: amounts has this name"),
        ("IMPL = [", "IMPL = 3 #", "parameters.IMPL: found 3, expected a list of values"),
        ("[parameters]", "[parametres]", "parametres: unknown key; did you mean parameters?"),
        ("[[constraints]]", "[constraints]", "constraints: found"),
        ("[parameters]", "derived = 3\n[parameters]", "derived: found 3, expected a table"),
        ("[parameters]", "amounts = [3]\n[parameters]", "amounts: found [3] (a list), expected a table"),
    ],
)
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
    space = space_of()
    found = space_document(space)["constraints"]
    assert [each["place"] for each in found] == [
        "",
        "cpu.constraints[0]",
        "cpu.wide.constraints[0]",
        "cpu.wide.constraints[1]",
        "cpu.split.constraints[0]",
    ]
    assert [each["limit_of"] for each in found] == [[], ["plain", "wide", "split"], ["wide"], ["wide"], ["split"]]
    printed = StringIO()
    Console(width=200, file=printed).print(space_shown(space))
    lines = printed.getvalue().splitlines()
    assert [line.split()[2:4] for line in lines if "a choice of this search" in line] == [["space", "file"]]
    assert [line.split()[2] for line in lines if "two rows at least" in line] == ["cpu.wide"]
    assert any(line.split()[:2] == ["TWICE", "2"] for line in lines)
