"""What a profile runs in a process of its own: one side, a forward of a variant or of a baseline.

A profiler starts that process, so the variant runs outside the cage there: it has passed the gate.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from autotuner.values.errors import InputError
from autotuner.values.files import why
from autotuner.values.profile import Side

LIMIT_S = 300.0
"""Seconds that one side may take; a profiler replays each kernel some forty times."""
ALIGNMENT = 64
MOST_BYTES = 1 << 40


def command(module: str, side: Side, folder: Path) -> list[str]:
    """What has a module run a side, which it finds in the folder."""
    path = folder / "side.json"
    path.write_text(side.model_dump_json())
    return [sys.executable, "-m", module, str(path)]


def output_of(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What a command of a profile printed. Raises InputError where it cannot be started or does not end."""
    root = Path(__file__).parent.parent.parent  # from which the process imports the same autotuner
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=root)
    except OSError as error:
        raise InputError(f"{command[0]} cannot be started: {why(error)}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]} did not end in {LIMIT_S:.0f} s: profile a smaller problem") from None


def forward_of(side: Side, device: str) -> Callable[[], object]:
    """A forward of the side on a torch device, ready to be called."""
    import torch

    from autotuner.devices.bench import workspace_bytes
    from autotuner.forge.loaded_variant import LoadedVariant
    from autotuner.gate.cases import measured
    from autotuner.ops import op_of
    from autotuner.ops.tensors import moved

    problem, op = side.problem, op_of(side.problem)
    inputs = moved(op.tensors().inputs(problem, measured(problem).distribution, 1), device)
    if side.artifact is None:
        baseline = op.baselines[side.baseline]
        call, beside = baseline.forward(problem), baseline.beside(problem, inputs)
        return lambda: call(*inputs, *beside)
    variant, outputs = LoadedVariant(side.artifact), op.tensors().outputs(problem, inputs)
    wanted = workspace_bytes(variant, problem, MOST_BYTES)
    workspace = torch.empty(wanted + 2 * ALIGNMENT, dtype=torch.uint8, device=device)
    address = -(-workspace.data_ptr() // ALIGNMENT) * ALIGNMENT
    launch = variant.prepared(problem, inputs, outputs, address, wanted)

    def forward() -> object:
        status = launch(torch.cuda.current_stream().cuda_stream if device == "cuda" else 0)
        if status:
            raise RuntimeError(f"the variant gives status {status}")
        return workspace, outputs  # which live as long as the forward

    return forward
