"""Surroundings that containers and clusters give: no home, mounts that nothing is run from, stores on shared disks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.store import database
from autotuner.store.store import Store
from autotuner.values.errors import StoreError
from autotuner.values.files import file_system_of
from tests.helpers.stores import sample_store

MAPPED = ("--user", "--map-user=54321", "--map-group=54321")
HOMELESS = ("env", "-u", "HOME", "-u", "USER", "-u", "LOGNAME", "-u", "XDG_CACHE_HOME", "-u", "AUTOTUNER_CACHE")


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **more})


def require(*command: str) -> None:
    """Skips where this user may not do that."""
    if run(*command, "true").returncode:
        pytest.skip(f"`{' '.join(command)}` is not allowed here")


def test_a_user_without_a_home_has_a_private_cache(tmp_path: Path) -> None:
    require("unshare", *MAPPED)
    shown = (*HOMELESS, sys.executable, "-m", "autotuner", "cache", "show")
    done = run("unshare", *MAPPED, *shown, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = tmp_path.glob("autotuner-*")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o777)  # others may have put something there
    refused = run("unshare", *MAPPED, *shown, TMPDIR=str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "set AUTOTUNER_CACHE" in refused.stderr


def test_a_library_on_a_mount_that_nothing_is_run_from_is_refused_in_a_line(tmp_path: Path) -> None:
    require("unshare", "--mount")
    code = (
        "from pathlib import Path; import sys\n"
        "from autotuner.serve.runtime.library import _opened\n"
        "_opened(Path(sys.argv[1]))"
    )
    (tmp_path / "variant.so").write_bytes(Path(sys.modules["_ctypes"].__file__ or "").read_bytes())
    script = 'mount -t tmpfs -o noexec,mode=700 none "$1" && cp "$2" "$1/" && exec "$3" -c "$4" "$1/variant.so"'
    (tmp_path / "mount").mkdir()
    words = ("sh", str(tmp_path / "mount"), str(tmp_path / "variant.so"), sys.executable, code)
    done = run("unshare", "--mount", "sh", "-c", script, *words)
    assert "ImportError" in done.stderr
    assert "is mounted noexec" in done.stderr
    assert "set AUTOTUNER_CACHE" in done.stderr


def test_a_cache_that_no_library_is_loaded_from_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    require("unshare", "--mount")
    code = "from autotuner.forge.build import require_cache; require_cache()"
    script = 'mount -t tmpfs -o noexec,mode=700 none "$1" && AUTOTUNER_CACHE="$1" exec "$2" -c "$3"'
    done = run("unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, code)
    assert "InputError" in done.stderr
    assert "is mounted noexec" in done.stderr


def test_questions_are_answered_of_a_store_that_may_only_be_read(tmp_path: Path) -> None:
    require("unshare", "--mount")
    study = sample_store(tmp_path / "studies.db")
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    mounted = ("unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, "-m", "autotuner")
    store = ("--store", str(tmp_path / "studies.db"))
    assert study in run(*mounted, "status", *store).stdout
    refused = run(*mounted, "study", "rename", study, "other", *store)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "cannot be written" in refused.stderr


def test_a_store_on_a_shared_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = file_system_of(tmp_path)
    assert kind
    monkeypatch.setattr(database, "NETWORKS", {kind})
    with pytest.raises(StoreError, match=r"local disk, or postgresql://"):
        Store.open(str(tmp_path / "studies.db"))
