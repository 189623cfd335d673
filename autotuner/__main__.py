"""`python -m autotuner` and the console script. Imports nothing heavy: a job's process may import it again."""

import atexit
import gc
import io
import os
import sys


def main() -> None:
    """Runs the command line."""
    _fill_standard_files()
    atexit.register(gc.freeze)  # else the interpreter looks for cycles in all that was imported before it ends
    try:
        from autotuner.cli.app import run
    except KeyboardInterrupt:
        os.write(2, b"autotuner: stopped before anything was begun\n")
        sys.exit(130)
    run()


def _fill_standard_files() -> None:
    """Opens what was closed of standard input, output and error: else the next file that is opened, a store perhaps,
    has that number, and what is printed goes into it."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    sys.stdin = sys.stdin or os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that is no text is shown all the same


if __name__ == "__main__":
    main()
