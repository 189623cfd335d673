"""The gate on one variant, in a process that can be killed: reads a request from standard input, writes the report to
standard output, or one line to standard error.

    python -m autotuner.web.gate_child FOLDER <request.json
"""

from __future__ import annotations

import sys
from pathlib import Path

from autotuner.tuning import gate_one
from autotuner.values.errors import AutotunerError, DeviceBusyError, InputError
from autotuner.web.api_models import GateRequest

REFUSED, BROKEN, BUSY = 2, 3, 4
"""Exit codes: for what the caller can mend, for what is ours, and where the device is timed by somebody else."""


def main(folder: Path, document: str) -> int:
    """Judges the variant of a request; the exit code."""
    asked = GateRequest.model_validate_json(document)
    try:
        subject = gate_one.of_family(
            folder,
            asked.family,
            asked.device,
            asked.implementation,
            asked.parameters,
            asked.problem,
            asked.threads,
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
