"""A command under a real terminal of 80 columns: what it draws, and what it is typed."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

from rich.console import Console, RenderableType

from tests.helpers.command_line import SCRIPT

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What moves the cursor, clears lines or sets colours."""


def printed_at(width: int, view: RenderableType) -> str:
    """A view on a terminal of that width, without colours."""
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as said:
        console.print(view)
    return said.get()


class Terminal:
    """The console script in a folder, on a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 80, rows: int = 24) -> None:
        self._pid, self._end = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), PYTHONFAULTHANDLER="1")
            os.environ.pop("NO_COLOR", None)
            os.execv(SCRIPT, [str(SCRIPT), *arguments])
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._seen = ""

    @property
    def text(self) -> str:
        """All that was drawn so far, in order, without what moves and colours."""
        return CONTROL.sub("", self._seen)

    @property
    def lines(self) -> list[str]:
        """The same in lines; a line that is drawn again is there again."""
        return [line.rstrip() for line in re.split(r"[\r\n]+", self.text)]

    def until(self, words: str, seconds: float = 120) -> None:
        """Reads until these words were drawn. Raises TimeoutError with what was seen."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            if time.monotonic() > deadline or not self._read():
                raise TimeoutError(f"{words!r} was not drawn: {self.text[-2000:]}")

    def press(self, key: str) -> None:
        """Types."""
        os.write(self._end, key.encode())

    def end(self, seconds: float = 240) -> int:
        """Reads to the end; the exit code. Raises TimeoutError with where each thread is if it does not come."""
        deadline = time.monotonic() + seconds
        while self._read():
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGABRT)
                self.until("most recent call first", 10)
                raise TimeoutError(f"it did not end: {self.text[-4000:]}")
        os.close(self._end)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self) -> bool:
        """Reads a bit; False at the end."""
        if not select.select([self._end], [], [], 1.0)[0]:
            return True
        try:
            found = os.read(self._end, 65536)
        except OSError:  # the other end was closed
            return False
        self._seen += found.decode(errors="replace")
        return bool(found)
