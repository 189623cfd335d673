"""The limits of a kernel family: how kernel.toml or limits.toml say them, and what they may not say."""

from pathlib import Path

import pytest

from autotuner.forge.family import Family
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import KernelError
from tests.helpers.files import refusals, text

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


BAD = refusals("limits")


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_what_limits_may_not_say(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in LIMITS
    folder = family(tmp_path, KERNEL, LIMITS.replace(old, new, 1))
    if not message:  # it may be a fact of a device: told when a space is enumerated
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
