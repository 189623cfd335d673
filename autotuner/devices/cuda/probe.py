"""What CUDA devices there are, asked in a process of its own, so that the caller never touches the driver."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from autotuner.values.model import Model

PROBE_S = 60


class CudaFacts(Model):
    """One device that a process sees."""

    name: str
    uuid: str
    """As CUDA_VISIBLE_DEVICES takes it."""
    sm: int
    multiprocessors: int
    l2_bytes: int
    driver: str
    """The CUDA version that the driver supports."""


ALL_FACTS = TypeAdapter(tuple[CudaFacts, ...])


def probe() -> CudaFacts | str:
    """The first CUDA device, or in words why there is none."""
    found = probe_all()
    return found if isinstance(found, str) else found[0]


def probe_all() -> tuple[CudaFacts, ...] | str:
    """The CUDA devices, at least one, in the order in which a process sees them; or in words why there is none. What
    there is, is asked once: the driver may take seconds to start."""
    found = _answered()
    if isinstance(found, str):
        _answered.cache_clear()
        begin.cache_clear()
    return found


@cache
def begin() -> subprocess.Popen[bytes]:
    """Asks now, for whoever will want to know. Raises OSError."""
    command = [sys.executable, "-IS", str(Path(__file__).with_name("ask_driver.py"))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@cache
def _answered() -> tuple[CudaFacts, ...] | str:
    try:
        asked = begin()
        try:
            said, _ = asked.communicate(timeout=PROBE_S)
        finally:
            asked.kill()
        found = json.loads(said)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"the CUDA driver does not answer ({error})"
    return found if isinstance(found, str) else ALL_FACTS.validate_python(found)
