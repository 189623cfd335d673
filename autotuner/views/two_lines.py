"""Lines at the foot of a terminal that tick, with what happens printed above them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.text import Text

TICKS = 4
"""Times a second that the lines are drawn anew."""
SHORTEST, LONGEST = 8, 30
"""Characters of a bar."""


class TwoLines:
    """Draws its lines again and again, also while the program waits; nothing where the console is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(self, console=console, refresh_per_second=TICKS, transient=True)

    @abstractmethod
    def lines(self, width: int) -> Sequence[str]:
        """What is at the foot now, in so many characters."""

    @property
    def is_live(self) -> bool:
        """Whether anybody sees the lines."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """Prints a line above."""
        self._console.print(Text(text, style=style))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width - 1  # a full line makes some terminals begin another
        for line in self.lines(width):
            yield Text(fitted(line, width), no_wrap=True, end="\n")


def fitted(line: str, width: int) -> str:
    """The line, cut to the width where it is longer."""
    return line if len(line) <= width else line[: width - 3].rstrip() + "..."


def bar(share: float, width: int) -> str:
    """A bar of which so much is full, 0..1; "" where there is too little room for one."""
    width = min(width, LONGEST)
    if width < SHORTEST:
        return ""
    full = round(min(max(share, 0.0), 1.0) * width)
    return "━" * full + "─" * (width - full)


def with_bar(before: str, share: float, after: str, width: int) -> str:
    """A line with a bar in it, as long as there is room for."""
    found = bar(share, width - len(before) - len(after) - 2)
    return f"{before} {found} {after}" if found else f"{before} {after}"


def left(seconds: float) -> str:
    """A time left, for a person; what has taken longer than was expected has none that anybody knows."""
    if seconds == float("inf"):
        return "time left unknown"
    if seconds < 1:
        return "longer than expected"
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
