"""Preloaded by the zygote, after all else.

It adopts every process below it that loses its parent, so that none gets away (fork_server.py), and takes them along
when it ends. At its end it leaves at once: Python would first tear down all of torch, and whoever reads the driver's
output through a pipe would wait for that, as the zygote holds the pipe too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import warnings

from autotuner.run.fork_server import children_of

PR_SET_CHILD_SUBREAPER = 36


def _leave() -> None:
    for _ in range(3):  # those whom the first ones leave behind, too
        for pid in list(children_of(os.getpid())):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    os._exit(0)


if any("multiprocessing.forkserver" in each for each in sys.orig_argv):  # any other process has an exit code to give
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    warnings.filterwarnings("ignore", "forkserver: waitpid")  # the end of one that it has adopted
    atexit.register(_leave)
