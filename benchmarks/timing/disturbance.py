"""A disturbance that is switched on and off, as another program would be: it is no child of who asks for it.

    python -m benchmarks.timing.disturbance cpu|cuda WATCHED ON OFF

Busy loops on every CPU, or matrix products on the first GPU: ON seconds of work, OFF seconds of none, until the process
WATCHED is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SIDE = 4096
"""Rows and columns of the matrices."""
PRODUCTS = 20
"""Between two looks at the clock."""


@contextmanager
def disturbed(kind: str, on_s: float, off_s: float = 0.0, times: int = 1) -> Iterator[None]:
    """Disturbs the device while the block runs, beginning with a disturbance. `times`: loops for each CPU."""
    words = [sys.executable, "-m", __name__, kind, str(os.getpid()), str(on_s), str(off_s)]
    loops = times * len(os.sched_getaffinity(0)) if kind == "cpu" else 1
    # the shell that starts them ends at once: they belong to nobody here
    command = ["sh", "-c", 'for _ in $(seq "$0"); do "$@" >/dev/null 2>&1 & echo $!; done', str(loops), *words]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    try:
        yield
    finally:
        for pid in found.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def spin() -> None:
    """A little work for a CPU."""
    for _ in range(100_000):
        pass


def multiplies() -> Callable[[], None]:
    """What makes a little work for a GPU."""
    import torch

    one, other = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16) for _ in range(2))

    def work() -> None:
        for _ in range(PRODUCTS):
            torch.mm(one, other)
        torch.cuda.synchronize()

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=["cpu", "cuda"])
    parser.add_argument("watched", type=int, help="a process")
    parser.add_argument("on_s", type=float)
    parser.add_argument("off_s", type=float)
    given = parser.parse_args()
    work = spin if given.kind == "cpu" else multiplies()
    began, period = time.monotonic(), given.on_s + given.off_s
    while Path(f"/proc/{given.watched}").exists():
        if (time.monotonic() - began) % period < given.on_s:
            work()
        else:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
