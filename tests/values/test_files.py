"""Files that a person names: a write is whole or not at all, and takes the place of nothing but a regular file."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from autotuner.values.errors import DiskFullError, InputError
from autotuner.values.files import read_regular, regular_target, write_atomically
from tests.helpers.refusing import refused


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "best.json"
    write_atomically(target, "one")
    write_atomically(target, "zwei \N{SNOWMAN}")
    assert target.read_text(encoding="utf-8") == "zwei \N{SNOWMAN}"
    assert [each.name for each in tmp_path.iterdir()] == ["best.json"]
    plain = tmp_path / "plain"
    plain.write_text("")
    assert target.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EACCES, InputError)]
)
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    target = tmp_path / "best.json"
    write_atomically(target, "old")

    def fail(_handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error, match=r"best\.json"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["best.json"]


def made(folder: Path, kind: str) -> Path:
    """Something that is no regular file."""
    path = folder / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(os.path.relpath(path))  # the whole path may be too long
    elif kind == "device":
        if os.getuid():
            return Path("/dev/null")
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    elif kind == "loop":
        path.symlink_to(path)
    return path


KINDS = ("folder", "pipe", "socket", "device", "loop")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path, kind: str, linked: bool) -> None:
    path = found = made(tmp_path, kind)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(found)
    before = found.lstat()
    with refused(InputError, "give another path"):
        write_atomically(path, "x")
    after = found.lstat()
    assert (after.st_mode, after.st_ino, after.st_rdev) == (before.st_mode, before.st_ino, before.st_rdev)
    with pytest.raises(InputError, match="choose another --out"):
        regular_target(path, "--out")
    with pytest.raises(OSError):  # noqa: PT011  # each kind has its own words
        read_regular(path, 10)


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name in ("there", "not_yet"):
        link, target = tmp_path / name, tmp_path / "real" / name
        link.symlink_to(target)
        if name == "there":
            target.write_text("old")
        write_atomically(link, b"new")
        assert link.is_symlink()
        assert not target.is_symlink()
        assert target.read_text() == "new"


@pytest.mark.parametrize("path", ["missing/best.json", "file/best.json", 300 * "n", "\udcff.json"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="give another path"):
        write_atomically(tmp_path / path, "x")


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert read_regular(path, 10) == b"0123456789"
    with pytest.raises(OSError, match="more than 9 bytes"):
        read_regular(path, 9)
