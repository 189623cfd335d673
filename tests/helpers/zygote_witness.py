"""Where things were imported and ran, for a driver that is a process of its own:
`python -m tests.helpers.zygote_witness`.

Preloaded, this module is imported in the zygote, once, and every job is forked from there.
"""

import json
import os
import sys
from contextlib import closing

import torch

from autotuner.run.local import LocalExecutor
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from tests.helpers.fake_line import FakeLine, Truth

IMPORTED_IN = os.getpid()
TORCH = torch.__version__


class Witness(FakeLine):
    """Its faults tell what its process saw."""

    def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
        saw = {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "imported_in": IMPORTED_IN,
            "torch": TORCH,
            "session": os.getsid(0),
            "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208
        }
        print("noise from a job")  # noqa: T201
        return Fault(verdict="build_failed", code="build.failed", detail=json.dumps(saw))


def witness() -> Witness:
    return Witness(lambda _: Truth())


def main() -> None:
    """Two jobs; what they saw goes to standard output."""
    from tests.conformance.executors import build_job
    from tests.helpers.ends import outcome
    from tests.helpers.zygote_witness import witness

    with closing(LocalExecutor(witness, preload=(witness.__module__,))) as executor:
        for _ in range(2):
            executor.submit(build_job())
        saw = [json.loads(fault.detail) for _ in range(2) if (fault := outcome(executor.wait(120)).fault)]
    sys.stdout.write(json.dumps({"driver": os.getpid(), "jobs": saw}))


if __name__ == "__main__":
    main()
