"""The limits of a kernel family: how kernel.toml or limits.toml say them, and what they may not say."""

from pathlib import Path

import pytest

from autotuner.forge.family import Family
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import KernelError
from tests.helpers.files import text

KERNEL = text("tiles_kernel.toml")
LIMITS = text("tiles_limits.toml")
SPACE = """
title = "x"
family = "tiles"
backend = "cpu"
problems = [{ batch = 1, heads = 2, seq_q = 64, seq_k = 64, head_dim = 64, dtype = "float32" }]
parameters = { IMPL = ["plain", "wide"], BLOCK = [8, 16], WIDTH = [4, 8] }
default = { IMPL = "plain" }
"""


def family(folder: Path, kernel: str = KERNEL, limits: str | None = None) -> Path:
    """The folder of a family."""
    (folder / "tiles").mkdir()
    (folder / "tiles" / "kernel.toml").write_text(kernel)
    (folder / "tiles" / "plain.cpp").touch()
    if limits is not None:
        (folder / "tiles" / "limits.toml").write_text(limits)
    return folder / "tiles"


def test_a_space_file_has_the_limits_of_the_family_beside_it(tmp_path: Path) -> None:
    family(tmp_path, KERNEL, LIMITS)
    (tmp_path / "x.toml").write_text(SPACE)
    file = load_space(str(tmp_path / "x.toml"))
    wide = file.branch("wide")
    places = [each.place for each in wide.constraints if ".constraints" in each.place]
    assert places == ["cpu.constraints[0] of tiles", "cpu.wide.constraints[0] of tiles"]
    assert list(file.branch("plain").parameters) == ["BLOCK"]
    assert list(wide.expected_latency) == ["STEP", "TIME"]


PLAIN = """
[cpu.plain.expected_latency]
STEP = "7 * BLOCK"
TIME = "STEP + 1"
"""


def test_each_implementation_has_its_own_expected_latency(tmp_path: Path) -> None:
    family(tmp_path, KERNEL, LIMITS + PLAIN)
    (tmp_path / "x.toml").write_text(SPACE)
    file = load_space(str(tmp_path / "x.toml"))
    assert file.branch("plain").expected_latency == {"STEP": "7 * BLOCK", "TIME": "STEP + 1"}
    assert file.branch("wide").expected_latency == {"STEP": "VECTORS * 10", "TIME": "STEP + PAIRS"}


BAD = [
    (
        'TWICE = "2 * BLOCK"',
        'TWICE = "2 * WIDE"',
        None,
    ),  # it may be a fact of a device: told when a space is enumerated
    ('TWICE = "2 * BLOCK"', 'TWICE = "2 *"', "cpu.amounts.TWICE: found '2 *': not an expression"),
    ('TWICE = "2 * BLOCK"', 'TWICE = "ROWS"', "cpu.amounts.TWICE: ROWS is not defined above it; move it up"),
    ('TWICE = "2 * BLOCK"', 'TWICE = "block"', "cpu.amounts.TWICE: found the name block, expected a parameter"),
    ('TWICE = "2 * BLOCK"', 'Twice = "2 * BLOCK"', "cpu.amounts.Twice: expected a name of capitals"),
    ('TWICE = "2 * BLOCK"', 'WIDTH = "2 * BLOCK"', "cpu.amounts.WIDTH: a parameter or a fact has"),
    ('TWICE = "2 * BLOCK"', 'HEADS = "2 * BLOCK"', "cpu.amounts.HEADS: a parameter or a fact has"),
    ('ROWS = "BLOCK // WIDTH"', 'TWICE = "WIDTH"', "cpu.wide.amounts.TWICE: cpu.amounts has this name; choose another"),
    ('VECTORS = "ceil', 'ROWS = "ceil', "cpu.wide.derived.ROWS: cpu.wide.amounts has this name; choose another"),
    ('VECTORS = "ceil_div(SEQ_Q, ROWS)"', 'VECTORS = "STEP"', "cpu.wide.derived.VECTORS: STEP is not defined above"),
    ('STEP = "VECTORS * 10"', 'STEP = "TIME"', "cpu.wide.expected_latency.STEP: TIME is not defined above it"),
    ('"PAIRS >= 1 and', '"STEP >= 1 and', "cpu.wide.constraints[0].expression: STEP is not defined above it"),
    ("[cpu.wide.amounts]", "[cpu.plain.amounts]", "cpu.plain.amounts.ROWS: WIDTH is no parameter of it but of another"),
    ("[cpu.wide.amounts]", "[cpu.wade.amounts]", "cpu.wade"),
    (
        "[[cpu.wide.constraints]]",
        "[[cpu.wide.constraint]]",
        "cpu.wide.constraint: unknown key; did you mean constraints?",
    ),
    ("[cpu.wide.derived]", "[cpu.wide.deriveds]", "cpu.wide.deriveds: unknown key; did you mean derived?"),
    ('reason = "two rows at least"', "", "cpu.wide.constraints[0].reason: missing"),
    ('reason = "two rows', 'reasons = "two rows', "cpu.wide.constraints[0].reasons: unknown key; did you mean reason?"),
    ('reason = "two rows', 'place = "two rows', "cpu.wide.constraints[0].place: unknown key"),
    ("[cpu.amounts]", "[gpu.amounts]", "gpu: "),
    (
        "[cpu.wide.expected_latency]",
        '[cpu.expected_latency]\nX = "BLOCK"\n[cpu.wide.expected_latency]',
        "cpu.wide.expected_latency: cpu has one for all implementations; remove one of the two",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_what_limits_may_not_say(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    assert old in LIMITS
    folder = family(tmp_path, KERNEL, LIMITS.replace(old, new, 1))
    if message is None:
        Family.load(folder)
        return
    with pytest.raises(KernelError) as caught:
        Family.load(folder)
    found = str(caught.value)
    assert found.startswith(f"{folder}/limits.toml: ")
    assert "\n" not in found
    assert message in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not TOML: "),
        ('family = "tiles"', "family: found 'tiles', expected tables of limits"),
        ("[cpu]\nplain = 3", "cpu.plain: found 3, expected a table"),
        ("[cpu.plain]\nsource = 3", "cpu.plain.source: unknown key"),
    ],
)
def test_a_limits_toml_has_limits_and_nothing_else(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        Family.load(family(tmp_path, KERNEL, text))
    assert str(caught.value).startswith(f"{tmp_path}/tiles/limits.toml: {message}")
