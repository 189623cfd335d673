"""Where an export that is a folder is written: what is refused before a build, and what becomes of the old folder."""

import errno
import os
from pathlib import Path

import pytest

from autotuner.serve.folder import MARK, fresh
from autotuner.values.errors import DiskFullError, InputError
from tests.helpers.refusing import refused


def export(target: Path, content: str) -> None:
    with fresh(target) as private:
        (private / "content").write_text(content)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def odd(folder: Path, kind: str) -> Path:
    """A path that no folder can be written to."""
    path = folder / kind
    if kind == "file":
        path.write_text("mine")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "foreign":
        path.mkdir()
        (path / "mine").write_text("")
    elif kind == "link_to_file":
        (folder / "there").write_text("mine")
        path.symlink_to(folder / "there")
    elif kind == "link_to_foreign":
        path.symlink_to(odd(folder, "foreign"))
    elif kind == "link_to_loop":
        path.symlink_to(odd(folder, "loop"))
    elif kind == "below_a_file":
        return odd(folder, "file") / "demo"
    else:
        return folder / (300 * "n")
    return path


KINDS = ("file", "pipe", "loop", "foreign", "link_to_file", "link_to_foreign", "link_to_loop", "below_a_file", "long")


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_written_is_refused_before_anything_is_built(tmp_path: Path, kind: str) -> None:
    path = odd(tmp_path, kind)
    before = {each: each.lstat().st_ino for each in tmp_path.rglob("*")}
    with refused(InputError, r"--out .*; name (a new|another) folder"), fresh(path):
        pytest.fail("something was built")
    assert {each: each.lstat().st_ino for each in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("there", ["export", "empty", "nothing", "nothing_deep"])
def test_a_link_stays_and_the_folder_that_it_names_is_written(tmp_path: Path, there: str) -> None:
    place, link = tmp_path / "real" / "deep" / "demo", tmp_path / "link"
    link.symlink_to(place)
    if there != "nothing_deep":
        place.parent.mkdir(parents=True)
    if there == "export":
        export(place, "old")
    elif there == "empty":
        place.mkdir()
    export(link, "new")
    assert link.is_symlink()
    assert not place.is_symlink()
    assert (place / "content").read_text() == "new"
    assert names(place.parent) == ["demo"]


def test_an_export_takes_the_place_of_the_old_one_whole(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    export(target, "old")
    (target / "more").write_text("")
    export(target, "new")
    assert names(target) == sorted([MARK, "content"])
    assert names(tmp_path) == ["demo"]
    assert target.stat().st_mode & 0o777 == 0o755


def test_a_failed_build_leaves_the_old_export(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    export(target, "old")
    with pytest.raises(ZeroDivisionError), fresh(target):
        raise ZeroDivisionError
    assert (target / "content").read_text() == "old"
    assert names(tmp_path) == ["demo"]


def test_what_came_there_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    with pytest.raises(InputError, match="something else is there"), fresh(target):
        target.write_text("mine")
    assert target.read_text() == "mine"
    assert names(tmp_path) == ["demo"]


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, DiskFullError), (errno.EACCES, InputError)])
def test_the_old_export_is_back_where_the_new_one_cannot_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    target = tmp_path / "demo"
    export(target, "old")
    rename, calls = Path.rename, []

    def second_fails(path: Path, to: Path) -> Path:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(code, os.strerror(code))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(error, match="--out "):
        export(target, "new")
    assert (target / "content").read_text() == "old"
    assert names(tmp_path) == ["demo"]
