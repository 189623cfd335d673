"""A process beside a caged one that draws up references and keeps them in the cache, where the caged one only reads.

It is forked before any variant is loaded and runs none. What it is asked comes from a process that a variant may have
spoilt: it takes a case and a seed, as JSON, and gives back nothing but that the reference is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal

from autotuner.gate.cases import Case

HIGHEST_FILE = 1 << 16
LONGEST = 1 << 16
"""Bytes of a question."""


def start() -> None:
    """Starts it for this process, whose references come from it from now on."""
    from autotuner.gate import tolerance  # imports torch, which the driver does without

    questions, ask = os.pipe()
    answers, answer = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            _serve(questions, answer, parent)
        finally:
            os._exit(0)
    os.close(questions)
    os.close(answer)

    def drawn_up(case: Case, seed: int) -> bool:
        with contextlib.suppress(OSError):
            os.write(ask, json.dumps([case.model_dump(mode="json"), seed]).encode() + b"\n")
            return bool(os.read(answers, 1))
        return False

    tolerance.draw_up_elsewhere(drawn_up)


def _serve(questions: int, answer: int, parent: int) -> None:
    from autotuner.gate import tolerance

    die_with_parent()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    close_others(questions, answer)
    left = b""
    while os.getppid() == parent and len(left) < LONGEST and (read := os.read(questions, LONGEST)):
        *lines, left = (left + read).split(b"\n")
        for line in lines:
            document, seed = json.loads(line)
            tolerance.truth(Case.model_validate(document), int(seed))
            os.write(answer, b".")


def close_others(*keep: int) -> None:
    """Closes every file but these and the standard ones."""
    first = 3
    for kept in (*sorted(keep), HIGHEST_FILE):
        os.closerange(first, kept)
        first = kept + 1


def die_with_parent() -> None:
    """The system kills this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
