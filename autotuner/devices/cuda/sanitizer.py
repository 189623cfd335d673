"""G8 on CUDA: the artifact as it is under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from autotuner.devices.cuda import sanitized_process
from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.gate import sanitizer_report
from autotuner.gate.check import Unavailable
from autotuner.gate.sanitizer import MEMORY, RACE, Level
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem

FLAGS = ("--check-exit-code", "no", "--print-limit", "20")
TOOLS = {
    # Without padding, allocations of whole granules touch, and what is past the end of one belongs to the next.
    MEMORY.code: ("--tool", "memcheck", "--padding", "1024", "--report-api-errors", "no"),
    RACE.code: ("--tool", "racecheck"),
}


class CudaSanitizer:
    """compute-sanitizer, where it is installed."""

    errors = CUDA_ERRORS

    def command(self, level: Level, artifact: Artifact, cases: Sequence[Problem], folder: Path) -> list[str]:
        tool = config.compute_sanitizer()
        if tool is None:
            raise Unavailable("no compute-sanitizer: neither beside nvcc, nor on the PATH, nor installed by pip")
        job = folder / "job.json"
        job.write_text(sanitized_process.Job(artifact=artifact, cases=tuple(cases)).model_dump_json())
        process = [sys.executable, "-m", sanitized_process.__name__, str(job), str(folder / "progress")]
        return [tool, *TOOLS[level.code], *FLAGS, *process]

    def is_finished(self, output: str) -> bool:
        return sanitizer_report.is_finished(output)
