"""Where jobs run: the seam between the driver and the processes, or later the machines, that do the work."""

from __future__ import annotations

from typing import Protocol

from autotuner.run.jobs import AnyJob, Result


class Executor(Protocol):
    """Runs jobs so that no variant can harm the driver: submit, wait, close.

    Builds may run beside each other and beside jobs on the devices; on each device there is one job at a time.
    """

    @property
    def width(self) -> int:
        """How many variants in flight, from proposal to outcome, keep it busy."""

    @property
    def lanes(self) -> int:
        """On how many devices jobs run, side by side."""

    @property
    def builders(self) -> int:
        """How many variants are built side by side at most."""

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        """Queues the job for the device of that lane, 0 <= lane < lanes; a BuildJob needs none. The number that it
        returns is the handle by which `wait` reports the job.

        A job whose attribute `fresh` is True has a process, or else a backend, that does no other job.
        """

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        """The next finished job, or None after `timeout` seconds and when there is nothing to wait for.

        Raises InputError and OracleError as the job raised them, and InfrastructureError when its process was lost for
        reasons that are not a variant's, or when the device does not work any more.
        """

    def close(self) -> None:
        """Ends every process, finished or not."""
