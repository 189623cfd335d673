"""Bad files, bad command lines and damaged stores, drawn at random, and what a command makes of them.

Whatever it is given, a command ends with exit code 0, 1 or 2. Of an error it prints one line. It takes below 10 s of
CPU time, and less than 700 MB beside what its process had.
"""

import contextlib
import functools
import os
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

import typer
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from autotuner.jobs import queue
from autotuner.store import Store, device_health
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from autotuner.values import config
from tests.helpers import hostile_commands, simulated
from tests.helpers.files import FILES
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.recorded import (
    CALIBRATION,
    deduplicated,
    hold_finals,
    measured,
    raced_out,
    record_all,
    rejected,
    study_record,
)

CPU_S, MEMORY_BYTES = 10.0, 700_000_000
ROOT = Path(__file__).parent.parent.parent
OWN = ROOT / "examples" / "own_kernel"
SPACE = (OWN / "space.toml").read_text()
KERNEL = (OWN / "rows" / "kernel.toml").read_text()
SOURCE = (OWN / "rows" / "rows.cpp").read_text()
LIMITS = (FILES / "rows_limits.toml").read_text()


WARNS = "without a table of what serves which problem"
"""How the one line begins that an export says beside its result."""
PROVEN_BY = {
    **{"CPU_VECTOR_BYTES": 32, "CPU_FMA": True, "CPU_BF16_DOT": False},
    **{"L2_BYTES": 1 << 20, "L3_BYTES": 1 << 25, "THREADS_ALLOWED": 2},
}
"""What a table of what serves which problem asks of a CPU."""


class Case(NamedTuple):
    """A folder's files, and a command that is given there."""

    files: dict[str, bytes]
    words: tuple[str, ...]
    drives: bool = False
    """A driver goes on with the store first, on a device that is made up."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int | None
    """None: by an exception that nobody caught."""
    out: str
    err: str
    cpu_s: float
    taken: int = 0
    """Bytes by which its process had more in memory meanwhile."""


# Drawing ------------------------------------------------------------------------------------------------------------

_ODD = """
0 -1 1e400 nan inf true [] {} ''' [[ ]] == '' "" [1,1] [1.5] 1_000 ["a",1] [default] 1979-05-27T07:32:00Z
9223372036854775807 9223372036854775808 "[/bold]" "\\u001b[2J" "\\u0000" "../../etc/passwd" "/dev/zero" "(a+)+$" "[a-"
'A'=1 like='space' {values=[1,2],when='X==1'}
"""
ODD = [
    *_ODD.split(),
    *("", "\x00", "\x1b[31m", "\ufeff", "\u202e", "\u00e9", "9" * 30, "9" * 5000, "0x" + "f" * 5000, "-" * 3000),
    *("[" * 3000, "{a=" * 500, "a." * 400 + "a=1", '"' + "x" * 70000 + '"', "[" + "1," * 3000 + "1]"),
]
EXPRESSIONS = [
    *("1 // 0", "BLOCK_N ** BLOCK_N ** 62", "2 ** 62 * 4", "BLOCK_N % 0 == 0", "not", "()", "(" * 200, "__import__"),
    *("BLOCK_N == 'x'", "lambda: 1", "[x for x in y]", "min()", "ceil_div(1, 0)", "TWICE * TWICE * TWICE", "BYTES"),
    *("IMPL", "SEQ_K", "HEAD_DIM and DTYPE", "1 if ROWS else 'a'", "ROWS in (1, 'a')", "ROWS in ()", "1" * 900),
    *("'a' < 3", "-" * 90 + "1", "TWICE", "-9223372036854775807 - 2", "SEQ_Q * SEQ_Q * SEQ_Q * SEQ_Q * SEQ_Q"),
]
"""In quotes they take the place of a value."""
TEXTS = [*ODD, *(f'"{each}"' for each in EXPRESSIONS)]

SHOW_SPACE = ["space show space.toml", "space show space.toml --json"]
_WORDS = """
--help --version -- - -x space.toml rows/kernel.toml all studies.db folder loop pipe /dev/null /dev/full /dev/zero
0 1 2 -1 6 99999999999999999999 nan inf -inf 1e999 0.0001 sm_90 cuda:0 cpu sdpa_cpu scalar small simulated
postgresql://a:bad@h:port/x sqlite:///x?timeout=y sqlite:// mysql://x :// file:x a=b IMPL=plain IMPL= = ffffffff [/red]
json package c evolution x.svg 5G 1e9T 16-64 64-16 18:30 90m 99:99 (1,2,64,64)
"""
WORDS = [*_WORDS.split(), "(1,2,64,64) float32 full", "n" * 300, "BLOCK_N=64 ROWS", "\udcff", "\x1b[31m", ""]

Change = tuple[str, int, int, str]
"""What is done, at which two places, and with what."""


KINDS = ["space", "kernel", "limits", "words", "store", "store", "row", "row", "driven"]


class Recipe(NamedTuple):
    """How a case is made: small, so that it can be drawn, shown and made smaller."""

    kind: str
    changes: list[Change]
    words: list[str]


def recipes() -> SearchStrategy[Recipe]:
    """Every kind of case."""
    places, texts = st.integers(0, 10**6), st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
    whats = st.sampled_from(
        ["value", "value", "value", "key", "line", "double", "drop", "inside", "cut", "tail", "over"]
    )
    changes = st.lists(st.tuples(whats, places, places, texts), min_size=1, max_size=3)
    kinds = st.sampled_from([*3 * ["space"], *3 * ["kernel"], *3 * ["limits"], *4 * ["words"], *KINDS])
    return st.builds(Recipe, kinds, changes, _lines())


def _lines() -> SearchStrategy[list[str]]:
    """Command lines: mostly a command with options of its own, some of them with a value."""
    odd = st.one_of(st.sampled_from(WORDS), st.sampled_from(hostile_commands.words()), st.text(max_size=8))

    def of(command: hostile_commands.Command) -> SearchStrategy[list[str]]:
        part = st.one_of(st.just(()), st.tuples(st.sampled_from(command.options)), st.tuples(odd))
        pair = st.tuples(st.sampled_from(command.options), odd)
        parts = st.lists(st.one_of(pair, pair, part), max_size=4)
        wanted = st.sampled_from([command.wanted, command.wanted, ()])
        return st.builds(lambda more, rest: [*command.words, *" ".join(more).split(), *chain(*rest)], wanted, parts)

    known = st.sampled_from(hostile_commands.commands()).flatmap(of)
    return st.one_of(known, known, known, st.lists(odd, max_size=6))


def made(recipe: Recipe) -> Case:
    """The case of a recipe."""
    kind, changes, words = recipe
    first = changes[0]
    if kind in ("space", "kernel", "limits"):
        base = {"space": SPACE, "kernel": KERNEL, "limits": LIMITS}[kind]
        return Case(family(**{kind: damaged(base, changes)}), _chosen(SHOW_SPACE, first))
    whole, driven = stores()
    asked = (whole, driven)[first[2] // 7 % 2]
    if kind == "store":
        return Case({"studies.db": damaged_bytes(asked, changes)}, _chosen(hostile_commands.questions(), first))
    if kind == "row":
        return Case({"studies.db": with_row(asked, *first)}, _chosen(hostile_commands.questions(), first))
    if kind == "driven":
        return Case({"studies.db": damaged_bytes(driven, changes)}, ("status",), drives=True)
    line = hostile_commands.ended(tuple(_argument(word) for word in words), first[2])
    return Case({**family(), "studies.db": asked}, line)


def _chosen(commands: Sequence[str], change: Change) -> tuple[str, ...]:
    return tuple(commands[(change[1] + change[2]) % len(commands)].split())


def _argument(word: str) -> str:
    """The word as an operating system can hand it over."""
    return os.fsdecode(word.replace("\0", "0").encode("utf-8", "surrogateescape" if word == "\udcff" else "replace"))


def family(space: bytes | None = None, kernel: bytes | None = None, limits: bytes | None = None) -> dict[str, bytes]:
    """The files of a kernel family with its space."""
    return {
        "space.toml": space if space is not None else SPACE.encode(),
        "rows/kernel.toml": kernel if kernel is not None else KERNEL.encode(),
        "rows/limits.toml": limits if limits is not None else LIMITS.encode(),
        "rows/rows.cpp": SOURCE.encode(),
    }


def damaged(base: str, changes: Sequence[Change]) -> bytes:
    """The text with a few of its parts replaced, doubled, left out or moved."""
    lines = base.splitlines()
    for what, first, second, text in changes:
        at, other = first % len(lines), second % len(lines)
        key, equals, value = lines[at].partition("=")
        if what == "value" and equals:
            lines[at] = f"{key}= {text}"
        elif what == "key":
            lines[at] = f"{text} {equals}{value}"
        elif what == "double":
            lines.insert(at, lines[other])
        elif what == "drop" and len(lines) > 1:
            del lines[at]
        elif what == "inside":
            cut = second % (len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + text + lines[at][cut:]
        elif what in ("cut", "tail", "over"):
            return damaged_bytes("\n".join(lines).encode("utf-8", "surrogatepass"), [(what, first, second, text)])
        else:
            lines.insert(at, text)
    return "\n".join([*lines, ""]).encode("utf-8", "surrogatepass")


def damaged_bytes(base: bytes, changes: Sequence[Change]) -> bytes:
    """The bytes with some overwritten, cut off or added."""
    found = base
    for what, first, second, text in changes:
        garbage = (text.encode("utf-8", "surrogatepass") or b"\xff") * (1, 1, 1, 4, 64, 1024)[second % 6]
        garbage, at = garbage[: 1 << 20], first % (len(found) + 1)
        if what == "cut":
            found = found[:at]
        elif what == "line":
            found += garbage
        elif what == "tail":
            found = found[: max(0, len(found) - len(garbage))] + garbage
        elif what == "drop":  # one bit
            at = first % max(1, len(found))
            found = found[:at] + bytes([found[at] ^ (1 << second % 8)]) + found[at + 1 :] if found else found
        else:
            found = found[:at] + garbage + found[at + len(garbage) :]
    return found


def with_row(store: bytes, what: str, first: int, second: int, text: str) -> bytes:
    """The store with another value, or another part of it, in one place of a table: as no writer of ours leaves it."""
    text = text.encode("utf-8", "replace").decode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "studies.db"
        path.write_bytes(store)
        with contextlib.closing(sqlite3.connect(path)) as connection, contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA ignore_check_constraints = ON")
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = [
                (table, name)
                for table in sorted(tables)
                for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')
            ]
            table, name = columns[first % len(columns)]
            rows = connection.execute(f'SELECT rowid, "{name}" FROM "{table}"').fetchall()
            row, old = rows[second % len(rows)] if rows else (0, None)
            value: object = text.encode() if what == "key" else text
            if what in ("value", "inside", "drop") and isinstance(old, str) and old:
                at = first % len(old)
                value = old[:at] + (text if what != "drop" else "") + old[at + len(text) :]
            connection.execute(f'UPDATE "{table}" SET "{name}" = ? WHERE rowid = ?', (value, row))
            connection.commit()
        return path.read_bytes()


@functools.cache
def stores() -> tuple[bytes, bytes]:
    """A store with every kind of trial and finals, and one of a sweep on a device that is made up."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "studies.db"
        with Store.open(str(path)) as store:
            record = study_record()
            known = record.device.model_copy(update={"facts": record.device.facts | PROVEN_BY})
            store.ensure_study(record.model_copy(update={"device": known}))
            session = store.start_session("scalar-abc", CALIBRATION, {"torch": "2.11"})
            first = measured(32, 80.0)
            found = [
                first,
                measured(64, 90.0),
                rejected(16),
                raced_out(8, 150.0),
                deduplicated(4, first),
                measured(2, 70.0),
            ]
            record_all(store, session, found)
            hold_finals(store, {32: 80.0, 64: 90.0}, {32: 0, 64: 1})
            _queue(store)
        one = _at_rest(path)
        path.unlink()
        with Store.open(str(path)) as store:
            _drive(store, 4)
            _queue(store)
        return one, _at_rest(path)


def _queue(store: Store) -> None:
    """Sweeps of which none is due, and a device in quarantine."""
    for change in (queue.pause, queue.cancel):
        change(store, queue.submit(store, queue.request_for(simulated.small_space().file))[0][0].id)
    with device_health.serving(store, {"cpu": ["cpu"]}, "here", "cpu", "A CPU", "worker"):
        device_health.quarantine(store, ["cpu"], "it was sick", "heal it", 1)


def _at_rest(path: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def _drive(store: Store, trials: int) -> None:
    plan = Plan(simulated.small_space(), simulated.DEVICE, simulated.conditions(), "random")
    Driver(store, InlineExecutor(simulated.backend()), plan).run(Budget(trials=trials))


# Running ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def laid_out(case: Case) -> Iterator[None]:
    """The working directory of a case. Nothing can be built there: a command that would begin to work ends."""
    before = Path.cwd()
    kept = {name: os.environ.get(name) for name in (config.STORE, config.CACHE, "CXX", "CUDA_HOME", "PATH")}
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        for name, content in case.files.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        (Path(folder) / "folder").mkdir()
        (Path(folder) / "loop").symlink_to("loop")
        os.mkfifo(Path(folder) / "pipe")
        os.environ |= {"CXX": "no-such-compiler", "PATH": folder, config.CACHE: f"{folder}/cache"}
        for name in (config.STORE, "CUDA_HOME"):
            os.environ.pop(name, None)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            for name, value in kept.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def run(case: Case) -> Ended:
    """Gives the command in this process, whose standard output and error are files meanwhile."""
    from autotuner.cli import app

    started = time.process_time()
    hostile_commands.program()
    held = begin_peak()
    with laid_out(case), open("stdout", "w+", errors="backslashreplace") as out, open("stderr", "w+") as err:
        kept = sys.argv, sys.stdout, sys.stderr
        sys.argv, sys.stdout, sys.stderr = ["autotuner", *case.words], out, err
        code: int | None = 0
        try:
            app.app = cast(typer.Typer, _Program(app.app, case.drives))
            app.run()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        except BaseException:
            code = None
            traceback.print_exc()
        finally:
            app.app = getattr(app.app, "whole", app.app)
            sys.argv, sys.stdout, sys.stderr = kept
        out.flush()
        err.flush()
        said = Path("stdout").read_text(errors="replace"), Path("stderr").read_text(errors="replace")
    return Ended(code, *said, time.process_time() - started, peak() - held)


class _Program:
    """The program; in some cases a driver goes on with the store of the working directory first."""

    def __init__(self, whole: object, drives: bool) -> None:
        self.whole, self._drives = whole, drives

    def __call__(self, **options: object) -> object:
        if self._drives:
            with Store.open("studies.db") as store:
                _drive(store, 6)
        return hostile_commands.program()(**options)


def faults(ended: Ended) -> list[str]:
    """What is not as it must be."""
    found = []
    lines = ended.err.splitlines()
    if ended.code not in (0, 1, 2):
        found.append(f"exit code {ended.code}")
    if "Traceback" in ended.err:
        found.append("a traceback")
    if ended.code == 2 and "Usage" not in ended.out and (len(lines) != 1 or not lines[0].startswith("autotuner: ")):
        found.append(f"{len(lines)} lines of error")
    if ended.code in (0, 1) and not all(each.startswith(WARNS) for each in lines):
        found.append("an error beside a result")
    if any(each in ended.out + ended.err for each in ("\x1b", "\x07", "\x9b")):
        found.append("a character that a terminal obeys")
    if ended.cpu_s > CPU_S:
        found.append(f"{ended.cpu_s:.1f} s of CPU time")
    if ended.taken > MEMORY_BYTES:
        found.append(f"{ended.taken / 1e9:.1f} GB")
    return found


def begin_peak() -> int:
    """Bytes in memory, from which `peak` counts on: other tests of this process may have had more. Where Linux does not
    let it begin anew, the most that there were until now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """Bytes that this process had in memory at most since `begin_peak`."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
