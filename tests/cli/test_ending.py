"""How the program ends when its output, its arguments or its patience do: signals, closed and full streams, markup."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command_line import SPACE, autotuner, lay_out, one_line
from tests.helpers.hostile import Case, faults, run

SCRIPT = shlex.quote(str(Path(sys.executable).parent / "autotuner"))


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.timed
@pytest.mark.parametrize(
    ("number", "times"),
    [
        (signal.SIGINT, 2),
        pytest.param(signal.SIGHUP, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_sweep_with_one_line_and_so_does_a_second_one(
    tmp_path: Path, number: signal.Signals, times: int
) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    with subprocess.Popen(
        [str(Path(sys.executable).parent / "autotuner"), "tune", "space.toml", "--no-finals"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert any("calibrating" in line for line in process.stdout)
        for _ in range(times):
            process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert re.fullmatch(r"autotuner: stopped.* the same command .*\n", said)  # what is kept, or the line of the second
    assert process.returncode == 130


def test_a_closed_standard_output_is_no_error(tmp_path: Path) -> None:
    for closed in (">&-", ">&- 2>&-", ">&- <&- 2>&-"):
        done = shell(f"{SCRIPT} space list {closed}", tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_full_standard_output_is_called_that(tmp_path: Path, form: str) -> None:
    one_line(shell(f"{SCRIPT} space list {form} >/dev/full", tmp_path), "standard output cannot be written")


def test_brackets_are_no_markup_and_escapes_are_refused(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE.replace("right and wrong", "[/red][bold]right"))
    shown = autotuner(tmp_path, "space", "show", "space.toml")
    assert shown.returncode == 0, shown.stderr
    assert "[/red][bold]right ones" in shown.stdout
    (tmp_path / "space.toml").write_text(SPACE.replace("right and", r"\u001b[31m"))
    one_line(autotuner(tmp_path, "space", "show", "space.toml"), "title", r"'\x1b'")


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "--seed", "-1"),
        ("show", "99999999999999999999"),
        ("leaderboard", "--limit", "99999999999999999999"),
        ("export", "--out", "/dev/null"),
        ("export", "--out", "/dev/full"),
        ("explain", "--figure", "/dev/null"),
        ("tune", "--out", "/dev/null"),
        ("status", "--store", "/dev/null"),
        ("status", "--store", "postgresql://a:bad@h:port/x"),
        ("space", "show", "/dev/zero"),
        ("space", "show", "n" * 300),
        ("gate", "IMPL=simd BLOCK_M"),
    ],
)
def test_what_no_command_takes_is_told_in_one_line(words: tuple[str, ...]) -> None:
    devices = {name: Path(name).stat().st_mode for name in ("/dev/null", "/dev/full", "/dev/zero")}
    ended = run(Case({}, words))
    assert (ended.code, ended.err.count("\n"), faults(ended)) == (2, 1, [])
    assert {name: Path(name).stat().st_mode for name in devices} == devices


def test_a_folder_whose_name_is_no_text_is_told(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"bad\xff")
    folder.mkdir()
    (folder / "space.toml").write_text(SPACE)
    for words in (("space", "show", "space.toml"), ("tune", "space.toml")):
        one_line(autotuner(folder, *words), "not UTF-8")


def test_a_cache_that_is_a_file_is_told(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "cache").write_text("")
    done = autotuner(tmp_path, "tune", "space.toml", AUTOTUNER_CACHE=str(tmp_path / "cache"))
    one_line(done, "cache", "AUTOTUNER_CACHE")
