"""The distribution's Chromium, and a server as a user starts it. Tests skip where there is no browser."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
DEADLINE_S = 30
"""Seconds that a server has to end."""


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window. Playwright brings none: the one of the distribution is driven."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root Chromium has no sandbox of its own; it shows nothing but our pages.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


class Served(NamedTuple):
    """A server that runs."""

    url: str
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def kill(self) -> None:
        """Ends it as no program can prevent."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)


@contextmanager
def served(store: Path, *options: str) -> Iterator[Served]:
    """`autotuner serve` on a free port while the block runs."""
    words = [sys.executable, "-m", "autotuner", "serve", "--store", str(store), "--port", "0", *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=store.parent)
    try:
        lines = iter(process.stdout.readline, "")  # on a busy machine a worker may be faster than the server
        line = next((line for line in lines if "/ serves" in line), "")
        found = re.match(r"(http://127\.0\.0\.1:\d+)/ serves", line)
        assert found is not None, line
        yield Served(found[1], process)
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
        if process.stdout is not None:
            process.stdout.close()
