"""Preloaded by the zygote, after all else.

It adopts every process below it that loses its parent, so that none gets away (fork_server.py), and takes them along
when it ends. After that it leaves at once: Python would first tear down all of torch, and whoever reads the driver's
output through a pipe would wait for that, as the zygote holds the pipe too.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import sys
import time
import warnings

from autotuner.run.fork_server import descendants_of, kill

PR_SET_CHILD_SUBREAPER = 36
LEAVE_S = 2.0
"""What a hung device holds may take longer to go: it is not waited for."""


def _leave() -> None:
    """A killed process hands its children over only when it has been taken down, which takes a while: so it looks again
    until nobody is left."""
    until = time.monotonic() + LEAVE_S
    while (below := descendants_of(os.getpid())) and time.monotonic() < until:
        kill(*below)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)
    os._exit(0)


if any("multiprocessing.forkserver" in each for each in sys.orig_argv):  # any other process has an exit code to give
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    gc.freeze()  # else each process that it forks looks for garbage in what is imported here, and so copies it
    warnings.filterwarnings("ignore", "forkserver: waitpid")  # the end of one that it has adopted
    atexit.register(_leave)
