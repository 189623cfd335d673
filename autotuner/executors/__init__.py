"""Where jobs run: the seam between the driver and the processes, or later the machines, that do the work."""

from __future__ import annotations

from typing import Protocol

from autotuner.evaluate import AnyJob, Result


class Executor(Protocol):
    """Runs jobs so that no variant can harm the driver: submit, wait, close.

    Builds may run beside each other and beside a job on the device; on the device there is one job at a time.
    """

    @property
    def width(self) -> int:
        """How many variants in flight, from proposal to outcome, keep it busy."""

    def submit(self, job: AnyJob) -> int:
        """Queues the job; its number is the handle by which `wait` reports it."""

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        """The next finished job, or None after `timeout` seconds and when there is nothing to wait for.

        Raises InputError and OracleError as the job raised them, and InfrastructureError when its process was lost for
        reasons that are not a variant's, or when the device does not work any more.
        """

    def close(self) -> None:
        """Ends every process, finished or not."""
