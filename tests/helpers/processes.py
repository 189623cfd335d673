"""Which processes a test left behind, told by the files they use or by a mark; and waiting for what processes do."""

import contextlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def _uses(process: Path, folder: str) -> bool:
    """True when the process works in the folder, has a file of it open, or names it on its command line."""
    if folder.encode() in (process / "cmdline").read_bytes():
        return True
    for link in (process / "cwd", *(process / "fd").iterdir()):
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith(folder):
                return True
    return False


def _alive(process: Path) -> bool:
    return (process / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0] not in "ZX"


def using(folder: Path) -> list[int]:
    """Numbers of the living processes that use the folder, this one apart."""
    found = []
    own = Path("/proc/self").resolve()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process != own and _alive(process) and _uses(process, str(folder)):
                found.append(int(process.name))
    return found


def marked(mark: str) -> dict[int, tuple[int, str]]:
    """Parent and name of the living processes that have the mark in their environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                text = (folder / "stat").read_text()
                name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
                if rest[0] not in "ZX":
                    found[int(folder.name)] = int(rest[1]), name
    return found


def wait_for_the_rest(mark: str, seconds: float = 30) -> None:
    """Until nothing that has the mark is left. Raises AssertionError where something is."""
    until = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left, f"still running: {left}"


def gone(folder: Path, within: float = 5.0) -> bool:
    """True as soon as nobody uses the folder any more."""
    until = time.monotonic() + within
    while using(folder):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def wait_for(what: Callable[[], bool], seconds: float = 120) -> None:
    """Until it is so. Raises AssertionError. A look that takes long, such as one into a store, is taken less often, or
    those that are waited for would have half a CPU less."""
    began = time.monotonic()
    until = began + seconds
    while not what():
        looked = time.monotonic()
        assert looked < until, "it never was so"
        time.sleep(max(0.02, 3 * (looked - began)))
        began = time.monotonic()


def child(code: str) -> subprocess.Popen[str]:
    """A process of Python that runs this, and reads and writes lines."""
    text = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{textwrap.dedent(code)}"
    return subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
