"""What surrounds a compiler: the disk that it writes to, and the environment that it reads."""

import shutil
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import FLAGS
from autotuner.values.errors import DiskFullError
from tests.helpers.workshop import set_up


@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded"])
@pytest.mark.parametrize("source", ["unit.cpp", "binding.cpp"])
def test_a_disk_without_space_is_no_fault_of_the_variant(
    tmp_path: Path, kernel_root: Path, monkeypatch: pytest.MonkeyPatch, words: str, source: str
) -> None:
    """Whatever language the user has: it is said in English to a program that reads it."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    said = f'[ "$LC_ALL" = C ] && echo "as: Fatal error: x.o: {words}" >&2 || echo "kein Platz" >&2'
    workshop = set_up(tmp_path, kernel_root, monkeypatch, f'case "$*" in *{source}*) {said}; exit 1;; esac')
    with pytest.raises(DiskFullError, match=r"no space left for builds in .*set AUTOTUNER_CACHE"):
        workshop.build()


def test_no_compiler_needs_space_outside_of_the_cache(
    tmp_path: Path, kernel_root: Path, monkeypatch: pytest.MonkeyPatch, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    workshop = set_up(tmp_path, kernel_root, monkeypatch)
    monkeypatch.setenv("TMPDIR", str(small_disk))
    assert workshop.library().path.startswith(str(workshop.cache))
    assert workshop.half_made() == []


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH"])
def test_what_no_identity_holds_changes_no_build(
    tmp_path: Path, kernel_root: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Here headers and an assembler that would make each build fail."""
    folder = tmp_path / "found first"
    folder.mkdir()
    (folder / "stdint.h").write_text("#error another one\n")
    (folder / "as").symlink_to("/bin/false")
    monkeypatch.setenv(variable, str(folder))
    workshop = set_up(tmp_path, kernel_root, monkeypatch)
    assert workshop.library().flags == FLAGS
