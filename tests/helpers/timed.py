"""Tests marked `timed` have deadlines of seconds, or say something of how long real work took. On a machine that is
busy with other things such a test may fail, and means nothing then.

Beside other tests it is put off when it fails: `python -m tests` tries it again alone. Alone it has three attempts, and
when all fail it is skipped if the machine was disturbed during each, else it has failed. What is a mistake in any case,
such as a name that is not there, is never skipped.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

ATTEMPTS = 3
PRESSURE = Path("/proc/pressure/cpu")
STAT = Path("/proc/stat")
DISTURBED = 0.25
"""Where something waited for a CPU for more than this share of the time, and what is no part of the tests used more
than this share of a CPU, the machine was disturbed."""
STOLEN = 0.1
"""It was too where the host of a virtual machine gave more than this share of a CPU to others."""
TICKS = os.sysconf("SC_CLK_TCK")
PUT_OFF = "failed beside other tests; tried again alone"
TIMEOUT = "from pytest-timeout"
"""In its message."""
BUSY = "the machine was busy with something else"
MISTAKES = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError", "TypeError")
"""What no busy machine makes of a test, unless nothing is there yet that should be: None."""


def protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a timed test; None, and nothing is done, for others."""
    if item.get_closest_marker("timed") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in put_off(item, nextitem) if "PYTEST_XDIST_WORKER" in os.environ else attempts(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def put_off(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """One attempt; a failure becomes a skip."""
    reports: list[pytest.TestReport] = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in reports):
        let_go()
    return spared(reports, PUT_OFF)


def let_go() -> None:
    """Of what a failure's traceback holds, such as an open file or a process: else the next test is blamed for it."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def attempts(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Up to three attempts."""
    calm = False
    for left in reversed(range(ATTEMPTS)):
        was_busy = watch()
        reports: list[pytest.TestReport] = runtestprotocol(item, log=False, nextitem=nextitem)
        calm = calm or not was_busy()
        failed = [said(report) for report in reports if report.failed]
        if not failed or any(TIMEOUT in message for message in failed):  # its clock is one for all attempts
            break
        let_go()
        if left:
            make_anew(item)
    return reports if calm else spared(reports, BUSY)


def make_anew(item: pytest.Item) -> None:
    """Its fixtures, and those of its module: the machine may have been disturbed while they were made. The session's
    stay."""
    # Ends all but the session: the node that is given stays. Its type says Item, which a session is not.
    item.session._setupstate.teardown_exact(item.session)  # type: ignore[arg-type]
    item._initrequest()  # type: ignore[attr-defined]


def spared(reports: list[pytest.TestReport], why: str) -> list[pytest.TestReport]:
    """The reports with a skip for each failure that a busy machine may have caused."""
    for report in reports:
        if report.failed and not is_mistake(said(report)):
            path, line, _ = report.location
            report.longrepr = (path, (line or 0) + 1, f"Skipped: {why} ({said(report)})")
            report.outcome = "skipped"
    return reports


def is_mistake(message: str) -> bool:
    """Whether a failure with this message is one of the program."""
    return message.partition(":")[0] in MISTAKES and "None" not in message


def said(report: pytest.TestReport) -> str:
    """The failure in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return next((line.strip() for line in str(text).splitlines() if line.strip()), "no message")[:200]


def watch() -> Callable[[], bool]:
    """From now on: was the machine disturbed until it is called? Where the system does not tell, by its load."""
    started, before, used, lost = time.monotonic(), waited(), used_by_others(), stolen()

    def disturbed() -> bool:
        seconds = time.monotonic() - started
        if stolen() - lost > STOLEN * seconds:
            return True
        if before is None:
            return os.getloadavg()[0] > 2 * len(os.sched_getaffinity(0))
        return min((waited() or 0.0) - before, used_by_others() - used) > DISTURBED * seconds

    return disturbed


def used_by_others() -> float:
    """The seconds of CPU since the start of the system that neither this process nor a child that has ended used."""
    user, nice, system, *_ = cpu_seconds()
    return user + nice + system - sum(os.times()[:4])


def stolen() -> float:
    """The seconds since the start of the system in which a CPU had work and the host ran something else."""
    return cpu_seconds()[7]


def cpu_seconds() -> list[float]:
    """Of all CPUs since the start of the system: user, nice, system, idle, iowait, irq, softirq, steal, ..."""
    return [int(word) / TICKS for word in STAT.read_text().splitlines()[0].split()[1:]]


def waited() -> float | None:
    """The seconds since the start of the system in which something waited for a CPU; None where nobody counts them."""
    try:
        line = PRESSURE.read_text().splitlines()[0]
    except OSError:
        return None
    return int(line.rsplit("total=", 1)[1]) * 1e-6
