"""How the program ends when its output, its arguments or its patience do: signals, closed and full streams, markup."""

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import typer

from autotuner.api import Study
from autotuner.cli.best import gate
from autotuner.cli.tune import _conclude, _say_that_nothing_wins
from autotuner.store import Store, queries
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import InputError
from tests.cli.messages import forget_trials
from tests.helpers import command_line, hostile
from tests.helpers.command_line import SPACE, autotuner, lay_out, one_line
from tests.helpers.hostile import LIMITS, Case, Ended, faults, run
from tests.helpers.stores import sample_store

SCRIPT = shlex.quote(str(command_line.SCRIPT))


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_signal_while_all_is_imported_ends_with_one_line(tmp_path: Path) -> None:
    code = "import sys\nclass Stop:\n  def find_spec(self, name, *_):\n    if name == 'rich': raise KeyboardInterrupt\n"
    code += "sys.meta_path.insert(0, Stop())\nfrom autotuner.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "autotuner: stopped before anything was begun\n")


@pytest.mark.timed
@pytest.mark.parametrize(
    ("number", "times"),
    [
        (signal.SIGINT, 2),
        pytest.param(signal.SIGHUP, 1, marks=[pytest.mark.slow, pytest.mark.sampled(1)]),
        pytest.param(signal.SIGINT, 1, marks=[pytest.mark.slow, pytest.mark.sampled(1)]),
    ],
)
def test_a_signal_ends_a_sweep_with_one_line_and_so_does_a_second_one(
    tmp_path: Path, number: signal.Signals, times: int
) -> None:
    lay_out(tmp_path)
    with subprocess.Popen(
        [str(command_line.SCRIPT), "tune", "space.toml", "--no-finals"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert any("first the baselines are timed" in line for line in process.stdout)
        for _ in range(times):
            process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert re.fullmatch(r"autotuner: stopped.* the same command .*\n", said)  # what is kept, or the line of the second
    assert process.returncode == 130


STUCK = """
import os, signal, time
from autotuner.cli import app
app.CLOSING_S = 0.1
signal.signal(signal.SIGINT, app._stop)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    time.sleep(600)
"""


def test_a_command_that_does_not_close_is_ended(tmp_path: Path) -> None:
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(STUCK)}", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (130, 1)
    assert "stopped; nothing is lost" in done.stderr


def test_a_second_signal_ends_what_can_write_nothing_any_more(tmp_path: Path) -> None:
    second = "from autotuner.cli import app; app._stop_now(15, None)"
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(second)} 2>/dev/full", tmp_path)
    assert done.returncode == 130


@pytest.mark.sampled(1)
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", ">&- <&- 2>&-"])
def test_a_closed_standard_output_is_no_error(tmp_path: Path, closed: str) -> None:
    done = shell(f"{SCRIPT} space list {closed}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words", [pytest.param("space list", marks=pytest.mark.slow), "space list --json", "tune nowhere 2>&1"]
)
def test_a_reader_that_has_gone_is_no_finding(tmp_path: Path, words: str) -> None:
    done = shell(f"{{ sleep 0.3; {SCRIPT} {words}; echo $? >code; }} | true", tmp_path)
    assert ((tmp_path / "code").read_text(), done.stderr) == ("2\n" if "tune" in words else "141\n", "")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["", "--json"])
def test_a_full_standard_output_is_called_that(tmp_path: Path, form: str) -> None:
    one_line(shell(f"{SCRIPT} space list {form} >/dev/full", tmp_path), "standard output cannot be written")


TEXTS = {
    "title": ("space", next(line for line in hostile.SPACE.splitlines() if line.startswith("title = "))[9:-1]),
    "reason": ("space", "a block is no longer than the keys"),
    "reason of limits": ("limits", "it stays in the cache"),
}
"""Where a file has a text that is shown."""


def with_text(what: str, said: str) -> Ended:
    """What is shown of a space in whose file, or in whose family's limits, that text stands."""
    file, known = TEXTS[what]
    text = {"space": hostile.SPACE, "limits": LIMITS}[file]
    assert known in text
    files = hostile.family(**{file: text.replace(known, said).encode()})
    return run(Case(files, ("space", "show", "space.toml")))


@pytest.mark.parametrize("what", TEXTS)
def test_brackets_are_no_markup_and_escapes_are_refused(what: str) -> None:
    shown = with_text(what, "[/red][bold]it")
    assert (shown.code, faults(shown)) == (0, [])
    assert "[/red][bold]it" in shown.out
    refused = with_text(what, r"\u001b[31m")
    assert (refused.code, refused.err.count("\n"), faults(refused)) == (2, 1, [])
    assert what.split()[0] in refused.err
    assert r"'\x1b'" in refused.err


@pytest.mark.parametrize("name", ["problems", "parameters"])
def test_a_space_with_five_thousand_entries_is_refused_at_once(name: str) -> None:
    line = next(each for each in hostile.SPACE.splitlines() if each.startswith("problems = "))
    if name == "problems":
        problem = line.partition("[")[2].rpartition("]")[0]
        text = hostile.SPACE.replace(line, f"problems = [{', '.join([problem.strip()] * 5000)}]")
    else:
        more = "\n".join(f"P{index} = [1, 2]" for index in range(5000))
        text = hostile.SPACE.replace("[parameters]\n", f"[parameters]\n{more}\n")
    ended = run(Case(hostile.family(space=text.encode()), ("space", "show", "space.toml")))
    assert (ended.code, ended.err.count("\n"), faults(ended)) == (2, 1, [])
    assert {"problems": "found the same problem twice", "parameters": "no implementation of it reads P0"}[
        name
    ] in ended.err


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


def test_where_nothing_wins_the_end_says_what_serves_and_what_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = sample_store(tmp_path / "studies.db")
    with closing(Store.open(str(tmp_path / "studies.db"))) as store:
        problem = queries.study(store, name).problems[0]
        _say_that_nothing_wins(store, name, Path("best.json"), serves=True)
        _conclude(store, [name], tmp_path / "best.json")  # 0.773x confirmed, and no table
    assert Study(str(tmp_path / "studies.db"), name).export(tmp_path / "mine.json").exists()  # as `tune` writes it
    forget_trials(tmp_path / "studies.db")
    with closing(Store.open(str(tmp_path / "studies.db"))) as store, pytest.raises(typer.Exit) as end:
        _conclude(store, [name], tmp_path / "none.json")
    assert end.value.exit_code == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"Nothing here is shown to beat fake at {problem}; best.json serves fake." in said
    assert f"tried so far is shown to be faster than fake at {problem}; {tmp_path}/best.json has the fastest" in said
    assert f"{tmp_path}/none.json is not written for {name}: more --minutes may help." in said
    assert "plain: 3 of 3 points judged, best 0.314x, 19 times its bound; left after 3 draws" in said
    assert f"More than 5.96x is not to be had at {problem}: fake took" in said


def test_what_a_compiler_says_keeps_its_lines(tmp_path: Path) -> None:
    lay_out(tmp_path)
    with (tmp_path / "mutants_numeric" / "mutants.cpp").open("a") as source:
        source.write("int wrong = not_there;\n")
    done = autotuner(tmp_path, "gate", "IMPL=mutant MUTANT=none", "--space", "space.toml")
    assert done.returncode == 2
    first, *rest = done.stderr.rstrip().splitlines()
    assert first.endswith("was not declared in this scope")
    assert any(line.strip().endswith("int wrong = not_there;") for line in rest)
    assert rest[-1].strip(" |^~") == ""


def test_baselines_are_judged_with_a_word_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise InputError("this far")

    monkeypatch.setattr(Workbench, "executor", ends)
    with pytest.raises(InputError, match="this far"):
        gate(reference=True, space="sdpa_cpu")
    assert capsys.readouterr().err.startswith("judging the baselines and timing them on ")
