"""The gate as a service: one variant at a time, each in a process group of its own with a deadline.

    python -m autotuner.web.gate_service FOLDER <request.json

is that process: it writes the report to standard output, or one line to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from autotuner.tuning.trial_report import TrialReport
from autotuner.values.errors import AutotunerError, DeviceBusyError, InfrastructureError, InputError
from autotuner.web.wire import GateRequest

REFUSED, BROKEN, BUSY = 2, 3, 4
"""Exit codes: for what the caller can mend, for what is ours, and where the device is timed by somebody else."""
DEADLINE_S = 600.0
"""Seconds that a build and its gate may take together."""


class GateBusy(AutotunerError):
    """Another variant is being judged, or another autotuner times the device. The message says which."""


class GateService:
    """Judges variants of the families in a folder."""

    def __init__(self, folder: Path | None, deadline_s: float = DEADLINE_S) -> None:
        self._folder, self._deadline_s = folder, deadline_s
        self._busy = False

    async def judge(self, asked: GateRequest) -> TrialReport:
        """The report on a variant, a rejected one's too. Raises InputError for what the caller can mend, GateBusy, and
        InfrastructureError."""
        if self._folder is None:
            raise InputError("no family can be judged here: the server was started without --families FOLDER")
        if self._busy:
            raise GateBusy("another variant is being judged")
        self._busy = True
        try:
            return await self._judged(self._folder, asked.model_dump_json())
        finally:
            self._busy = False

    async def _judged(self, folder: Path, document: str) -> TrialReport:
        command, pipe = [sys.executable, "-m", "autotuner.web.gate_service", str(folder)], asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        try:
            out, err = await asyncio.wait_for(child.communicate(document.encode()), self._deadline_s)
        except TimeoutError:
            raise InputError(f"the gate took longer than {self._deadline_s:.0f} s: choose a smaller problem") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
        if child.returncode == 0:
            return TrialReport.model_validate_json(out)
        lines = err.decode(errors="replace").strip().splitlines() or ["no reason was given"]
        if child.returncode == BUSY:
            raise GateBusy(lines[-1])
        if child.returncode == REFUSED:
            raise InputError(lines[-1])
        raise InfrastructureError(f"the gate ended with code {child.returncode}: {lines[-1]}")


def main(folder: Path, document: str) -> int:
    """Judges the variant of a request in this process; the exit code."""
    from autotuner.tuning import gate_one

    asked = GateRequest.model_validate_json(document)
    try:
        subject = gate_one.of_family(
            folder, asked.family, asked.device, asked.implementation, asked.parameters, asked.problem, asked.threads
        )
        judged = gate_one.judge(subject, patience_s=0)
    except AutotunerError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        if isinstance(error, DeviceBusyError):
            return BUSY
        return REFUSED if isinstance(error, InputError) else BROKEN
    sys.stdout.write(judged.report.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.stdin.read()))
