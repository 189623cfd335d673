"""torch's compiler, begun early: it takes ten to thirty seconds for a baseline, while processes are started anyway.

It imports no torch: the driver has none.
"""

import contextlib
import hashlib
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from autotuner.ops import op_of
from autotuner.values import config
from autotuner.values.problem import Problem

MAKING_S, SHARE = {"cpu": 30.0, "cuda": 10.0}, 1 / 3
"""Seconds that it needs for a baseline, about, by torch device, and the share of a run's time that it may have."""
DEADLINE_S = 200.0
"""Seconds that it may have where nothing limits the run."""
LATE = "torch's compiler had too little time to make it, a third of the run's; a longer run waits for it"
latest = math.inf
"""When this process gives up what it makes, on the monotonic clock."""
_begun: list[subprocess.Popen[bytes]] = []


def imports(device: str, problems: Sequence[Problem], functions: bool = False) -> tuple[str, ...]:
    """What processes import before they are forked, where it makes a baseline of the problems, or there are `functions`
    of Python that may use it: for a CPU it makes a library ahead of time, which needs nothing."""
    made = functions or any(op_of(each).compiled(each) for each in problems)
    return ("autotuner.ops.compiler",) if made and device == "cuda" else ()


def share_s(device: str, seconds: float | None) -> float:
    """The seconds that it may have of a run of so many, None: nothing limits it; 0 where they are too few."""
    share_s = DEADLINE_S if seconds is None else min(DEADLINE_S, SHARE * seconds)
    return share_s if share_s >= MAKING_S.get(device, 0.0) else 0.0


def begin(device: str, problems: Sequence[Problem], seconds: float | None = None) -> None:
    """Has it make what it makes of the problems, in processes of their own, where a run of so many seconds has the time
    for it; whoever asks for one waits for it there. They end with what they made, with an interrupt, or after a
    deadline. On a kind of device that it is not known for it begins when it is asked."""
    if device not in MAKING_S or not share_s(device, seconds):
        return
    _begun[:] = [each for each in _begun if each.poll() is None]
    folder = config.cache_dir().absolute() / "compiled"
    for problem in problems:
        if op_of(problem).compiled(problem) and not any(folder.glob(f"{name(problem)}-*")):
            command = [sys.executable, "-m", "autotuner.ops.compiled", "keep", problem.model_dump_json(), device]
            command += [] if seconds is None else [str(seconds)]
            nothing = subprocess.DEVNULL
            _begun.append(subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing))


@contextlib.contextmanager
def limited(device: str, seconds: float | None) -> Iterator[None]:
    """What this process makes meanwhile is for a run of so many seconds; None: nothing limits it."""
    global latest
    latest = time.monotonic() + share_s(device, seconds)
    try:
        yield
    finally:
        latest = math.inf


def name(problem: Problem) -> str:
    """What the folders of what was made of a problem begin with, whatever made it."""
    return f"{problem.op}-{hashlib.sha256(problem.model_dump_json().encode()).hexdigest()[:16]}"
