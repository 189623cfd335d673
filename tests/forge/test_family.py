"""Kernel families: what kernel.toml may say, where it is looked for, its variants, and what sources do not read."""

import re
import shutil
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.forge.unread import unread
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.errors import KernelError
from autotuner.values.variant import Variant
from tests.helpers.files import refusals
from tests.helpers.judging import KERNELS, PROBLEM
from tests.helpers.kernel_toml import GOOD, family


def variant(impl: str = "fast", **parameters: int | str) -> Variant:
    return Variant(family="mine", backend="cpu", impl=impl, parameters={"WIDTH": 8, "EXP": "poly", **parameters})


@pytest.mark.parametrize(("old", "new", "message"), refusals("kernel_toml"))
def test_what_is_wrong_in_a_kernel_toml_is_told_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    folder = family(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(KernelError, match=re.escape(message)) as raised:
        Family.load(folder)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"{folder}/kernel.toml: ")


def test_a_family_without_a_kernel_toml_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"kernel\.toml: cannot be read"):
        Family.load(tmp_path)
    (tmp_path / "kernel.toml").write_bytes(b'family = "\xff"')
    with pytest.raises(KernelError, match="not UTF-8 text"):
        Family.load(tmp_path)


def test_a_family_is_found_beside_the_space_file_first(tmp_path: Path) -> None:
    spaces = tmp_path / "project" / "spaces"
    spaces.mkdir(parents=True)
    places = [spaces.parent / "kernels", spaces / "kernels", spaces]
    for place in places:
        family(place)
        assert Family.find("mine", near=spaces).folder == (place / "mine").resolve()


def test_no_such_family_names_the_places(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="no kernel family 'nowhere'") as raised:
        Family.find("nowhere", near=tmp_path)
    assert str(tmp_path / "kernels") in str(raised.value)


def test_a_family_is_named_like_its_folder(tmp_path: Path) -> None:
    family(tmp_path, name="other")
    with pytest.raises(KernelError, match="found 'mine', expected the folder's name"):
        Family.find("other", near=tmp_path)


def test_what_a_family_does_not_take(tmp_path: Path) -> None:
    kernel = Family.load(family(tmp_path))
    kernel.admit(variant(), PROBLEM)
    with pytest.raises(KernelError, match="reads no parameter DEPTH"):
        kernel.admit(variant(DEPTH=1), PROBLEM)
    lacking = variant().model_copy(update={"parameters": {"WIDTH": 8}})
    with pytest.raises(KernelError, match="needs parameter EXP"):
        kernel.admit(lacking, PROBLEM)
    with pytest.raises(KernelError, match=r"no \[cpu.slow\]; implementations there: fast"):
        kernel.admit(variant("slow"), PROBLEM)
    with pytest.raises(KernelError, match=r"no \[cuda.fast\]; implementations there: none"):
        kernel.admit(variant().model_copy(update={"backend": "cuda"}), PROBLEM)
    with pytest.raises(KernelError, match="no dtype bfloat16; it has float32"):
        kernel.admit(variant(), PROBLEM.model_copy(update={"dtype": "bfloat16"}))
    with pytest.raises(KernelError, match="no head_dim 32"):
        kernel.admit(variant(), PROBLEM.model_copy(update={"head_dim": 32}))


def test_the_claims_that_apply_to_a_variant(tmp_path: Path) -> None:
    kernel = Family.load(family(tmp_path))

    def reasons(each: Variant) -> list[str]:
        return [effect.reason for effect in kernel.claims(each, PROBLEM).effects]

    assert reasons(variant()) == ["never"]
    assert reasons(variant(EXP="libm")) == ["EXP=libm calls the C library", "never"]
    assert reasons(variant(EXP="libm", WIDTH=4)) == ["never"]


# What the sources do not read -----------------------------------------------------------------------------------------


TINY = {"SIZE": (1, 2), "MODE": ("fast", "safe")}


@pytest.mark.parametrize(
    ("source", "values", "said"),
    [
        ('int n = SIZE;\n#if MODE_FAST && __has_include(<a/b.h>) && __has_include("c.h")\n#endif\n', TINY, []),
        ("int n = SIZE; // DEAD\n", {"SIZE": (1, 2), "DEAD": (0, 1)}, ["no source reads DEAD"]),
        ("int n = SIZE;\n", TINY, ["no source reads MODE"]),
        (
            "int n = SIZE;\n#ifdef MODE_FAST\n#endif\n",
            {**TINY, "MODE": ("fast", "safe", "slow")},
            ["no source tells MODE_SAFE and MODE_SLOW apart"],
        ),
        (
            "int n = SIZE;\n#if MODE_SAFE\n#elif MODE_FASTT\n#endif\n",
            TINY,
            ["no source reads MODE_FAST, but one reads MODE_FASTT"],
        ),
        (
            "int n = SIZE;\n#if MODE_FAST && \\\n  UNROL > 2 && defined(__SSE__)\n#endif\n",
            TINY,
            ["plain.cpp asks for UNROL in an #if, and nothing defines it"],
        ),
    ],
)
def test_what_no_source_reads_is_said(
    tmp_path: Path, source: str, values: dict[str, tuple[int | str, ...]], said: list[str]
) -> None:
    shutil.copytree(KERNELS / "tiny", tmp_path / "tiny")
    (tmp_path / "tiny" / "plain.cpp").write_text(source)
    found = unread(Family.load(tmp_path / "tiny"), "cpu", "plain", values, CpuToolchain.discover())
    assert found == [f"tiny, plain: {line}" for line in said]


@pytest.mark.parametrize("space", ["sdpa_cpu", "rmsnorm_cpu"])
def test_shipped_sources_read_all_that_is_searched(space: str) -> None:
    assert Workbench(load_space(space)).remarks == []
