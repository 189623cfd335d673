"""The cache: what it holds, what goes first, and one that several users share."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotuner.cli import app
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge import cache
from autotuner.forge.build import build, built, private_directory, publish, require_cache
from autotuner.forge.family import Family
from autotuner.values import config
from autotuner.values.errors import DiskFullError, InputError
from tests.conformance.executors import judge_job
from tests.helpers.command_line import MUTANTS, autotuner
from tests.helpers.judging import artifact_of
from tests.helpers.refusing import refused
from tests.helpers.workshop import Workshop
from tests.mutants.expectations import expectations

DAY = 86400.0


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of four builds of 1,000 bytes and a reference of 500, last used 1 to 5 days ago."""
    monkeypatch.setenv(config.CACHE, str(tmp_path))
    for age in range(1, 5):
        folder = tmp_path / "builds" / f"a{age}" / f"a{age}bcd"
        folder.mkdir(parents=True)
        (folder / "x.so").write_bytes(bytes(1000))
        _used(folder, age)
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "r.truth").write_bytes(bytes(500))
    _used(tmp_path / "references" / "r.truth", 5)
    return tmp_path


def _used(path: Path, days: float) -> None:
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))


def test_what_was_used_longest_ago_goes_first(filled: Path) -> None:
    done = cache.prune(most_bytes=2500)
    assert (done.removed, done.bytes, done.left.bytes) == (3, 2500, 2000)
    assert sorted(path.name for path in filled.glob("builds/*/*")) == ["a1bcd", "a2bcd"]
    assert cache.usage() == done.left
    assert not list((filled / "building").iterdir())


def test_what_may_be_in_use_stays(filled: Path) -> None:
    _used(filled / "builds" / "a4" / "a4bcd", 0)
    assert cache.prune(most_bytes=0).removed == 4
    assert cache.usage().builds == 1


def test_a_build_that_is_used_again_is_not_old(toolchain: CpuToolchain) -> None:
    one = expectations("cpu", "systemic")[0][0]
    family = Family.load(MUTANTS / "systemic")
    made = artifact_of(build(family, one.variant, one.problem, toolchain))
    _used(Path(made.path).parent, 9)
    assert build(family, one.variant, one.problem, toolchain) == made.model_copy(update={"build_seconds": 0.0})
    assert time.time() - Path(made.path).parent.stat().st_mtime < DAY


def test_the_command(filled: Path) -> None:
    shown = autotuner(filled, "cache", "show")
    assert "builds            4  3.9 KiB" in shown.stdout, shown.stderr
    assert "Removed 5 entries" in CliRunner().invoke(app.app, ["cache", "prune", "--to", "0"]).stdout


def test_what_a_sweep_races_against_is_not_pruned(filled: Path) -> None:
    used, gone = (
        judge_job().built.artifact.model_copy(update={"path": str(filled / "builds" / name / "x.so")})
        for name in ("a4/a4bcd", "a9/a9bcd")
    )
    assert cache.keep(used)
    assert not cache.keep(gone)
    cache.prune(most_bytes=0)
    assert [path.name for path in (filled / "builds").glob("*/*")] == ["a4bcd"]


# A cache that several users share -------------------------------------------------------------------------------------


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
def test_a_build_has_the_mode_that_the_umask_gives(workshop: Workshop, umask: int, mode: int) -> None:
    workshop.forget_objects()
    with under(umask):
        library = Path(workshop.library().path)
    assert library.parent.stat().st_mode & 0o777 == mode
    for each in library.parent.iterdir():
        assert each.stat().st_mode & 0o444 == mode & 0o444


@pytest.mark.parametrize("part", ["", "builds", "packages"])
def test_a_cache_that_every_user_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """What lies there is run."""
    monkeypatch.setenv(config.CACHE, str(tmp_path))
    require_cache()
    (tmp_path / part).chmod(0o777)
    with refused(InputError, r"every user may write there, .*`chmod -R o-w .*set AUTOTUNER_CACHE to another folder"):
        require_cache()
    (tmp_path / part).chmod(0o775)
    require_cache()


def test_no_command_makes_what_every_user_may_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "app", lambda standalone_mode: 0)
    with under(0):
        with pytest.raises(SystemExit):
            app.run()
        assert os.umask(0) == 0o002


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
