"""Preloaded by the zygote, after all else: at its end it leaves at once.

Python would first tear down all of torch, and whoever reads the driver's output through a pipe would wait for that, as
the zygote holds the pipe too. It has nothing to tidy up; those forked from it leave by themselves.
"""

from __future__ import annotations

import atexit
import os
import sys

if any("multiprocessing.forkserver" in each for each in sys.orig_argv):  # any other process has an exit code to give
    atexit.register(os._exit, 0)
