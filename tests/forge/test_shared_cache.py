"""A cache that several users share: what one of them built the others can load, as the umask says."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotuner.forge.build import built, private_directory, publish
from autotuner.values import config
from autotuner.values.errors import DiskFullError
from tests.helpers.workshop import set_up

NOBODY = 65534


@contextmanager
def under(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def another_user() -> Iterator[None]:
    """For root; anybody else stays who he is."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o002, 0o775), (0o077, 0o700)])
def test_a_build_has_the_mode_that_the_umask_gives(
    tmp_path: Path, kernel_root: Path, monkeypatch: pytest.MonkeyPatch, umask: int, mode: int
) -> None:
    workshop = set_up(tmp_path, kernel_root, monkeypatch)
    with under(umask):
        library = Path(workshop.library().path)
    assert library.parent.stat().st_mode & 0o777 == mode
    for each in library.parent.iterdir():
        assert each.stat().st_mode & 0o444 == mode & 0o444


def test_a_build_that_another_user_keeps_to_himself_is_told_with_his_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name, under(0):
        cache, final = Path(name), Path(name) / "builds" / "ab" / "abc"
        cache.chmod(0o755)
        final.mkdir(parents=True)
        (cache / "building").mkdir()
        (final / "artifact.json").touch()
        final.chmod(0)
        owner = final.owner()
        monkeypatch.setenv(config.CACHE, name)
        said = rf"cannot write builds to .*abc belongs to {owner}, .*set AUTOTUNER_CACHE to another folder"
        with another_user(), pytest.raises(DiskFullError, match=said), private_directory(final) as private:
            publish(private, final, built)
        final.chmod(0o700)
