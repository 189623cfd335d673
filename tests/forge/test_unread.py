"""What is said of a space before anything is built: what its sources do not read."""

import shutil
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.forge.unread import unread
from autotuner.tuning.workbench import Workbench, load_space

TINY = {"SIZE": (1, 2), "MODE": ("fast", "safe")}


@pytest.mark.parametrize(
    ("source", "values", "said"),
    [
        ("int n = SIZE;\n#if MODE_FAST\n#endif\n", TINY, []),
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
    tmp_path: Path, kernel_root: Path, source: str, values: dict[str, tuple[int | str, ...]], said: list[str]
) -> None:
    shutil.copytree(kernel_root / "tiny", tmp_path / "tiny")
    (tmp_path / "tiny" / "plain.cpp").write_text(source)
    found = unread(Family.load(tmp_path / "tiny"), "cpu", "plain", values, CpuToolchain.discover())
    assert found == [f"tiny, plain: {line}" for line in said]


@pytest.mark.parametrize("space", ["sdpa_cpu", "rmsnorm_cpu"])
def test_shipped_sources_read_all_that_is_searched(space: str) -> None:
    assert Workbench(load_space(space)).remarks == []
