"""What surrounds a compiler: the disk that it writes to, and the environment that it reads."""

import os
import shutil
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import FLAGS
from autotuner.values.errors import DiskFullError
from tests.helpers.workshop import Workshop, set_up


@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded"])
@pytest.mark.parametrize("source", ["unit.cpp", "binding.cpp"])
def test_a_disk_without_space_is_no_fault_of_the_variant(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, words: str, source: str
) -> None:
    """Whatever language the user has: it is said in English to a program that reads it."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    said = f'[ "$LC_ALL" = C ] && echo "as: Fatal error: x.o: {words}" >&2 || echo "kein Platz" >&2'
    workshop.compiler_does(f'case "$*" in *{source}*) {said}; exit 1;; esac')
    with pytest.raises(DiskFullError, match=r"no space left for builds in .*set AUTOTUNER_CACHE"):
        workshop.build()


def test_no_compiler_needs_space_outside_of_the_cache(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    monkeypatch.setenv("TMPDIR", str(small_disk))
    assert workshop.library().path.startswith(str(workshop.cache))
    assert workshop.half_made() == []


NAMED = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "LD_RUN_PATH", "GCC_COMPARE_DEBUG", "DEPENDENCIES_OUTPUT")


def test_what_no_identity_holds_changes_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here headers, an assembler and a file that would make each build fail, and a folder that a linker would have the
    library look for others in."""
    folder = tmp_path / "found first"
    folder.mkdir()
    (folder / "stdint.h").write_text("#error another one\n")
    (folder / "as").symlink_to("/bin/false")
    for variable in NAMED:
        monkeypatch.setenv(variable, str(folder))
    workshop = set_up(tmp_path, monkeypatch)
    library = workshop.library()
    assert library.flags == FLAGS
    assert os.fsencode(folder) not in Path(library.path).read_bytes()


def test_a_build_does_not_depend_on_the_time(workshop: Workshop) -> None:
    source = workshop.family / "plain.cpp"
    dates = '__DATE__ " " __TIME__ ", " __TIMESTAMP__'
    source.write_text(f"{source.read_text()}extern const char made[];\nconst char made[] = {dates};\n")
    assert b"Jan  1 1970 00:00:00, Jan  1 1970" in Path(workshop.library().path).read_bytes()
