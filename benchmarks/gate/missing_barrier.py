"""How a missing barrier hides: one kernel, launched after different predecessors.

    python -m benchmarks.gate.missing_barrier [--launches N] [--json docs/results/missing_barrier.json]

The kernel (tests/mutants/systemic, MUTANT=missing_barrier_before_max) lacks the barrier between the warp that writes a
tile of scores and the warps that look for the row's maximum in it. It is launched N times on one input at the mission
shape, after each of several predecessors. Every output is judged by the gate's tolerance and compared, bit by bit, with
that of the same kernel with the barrier. Then the whole gate judges it, and the version with the barrier. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autotuner.devices import DEVICES, Wishes, versions
from autotuner.devices.cuda.instruments import Instruments
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.cases import Case
from autotuner.gate.tolerance import Expected, Truth, compute_truth, judge
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, sdpa
from autotuner.ops.tensors import same_bits
from autotuner.run.line import GatedLine
from autotuner.tuning.workbench import toolchain_for
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from benchmarks.provenance import ROOT, command_line
from tests.helpers.judging import cuda_line

MISSION = SdpaProblem(batch=1, heads=8, seq_q=512, seq_k=512, head_dim=64, dtype="float16")
FILLS = (0, 0x7FFF7FFF, 0x7BFF7BFF, 0x42FE42FE)
Predecessor = Callable[[], object]


def launcher(variant: LoadedVariant, truth: Truth) -> Callable[[], Tensor]:
    """Launches on the truth's inputs; gives the output, which was NaN before."""
    o = torch.empty_like(truth.inputs[0])

    def launch() -> Tensor:
        status = variant.run(MISSION, truth.inputs, (o,), 0, 0, torch.cuda.current_stream().cuda_stream)
        assert status == 0, status
        return o

    return launch


def predecessors(itself: Callable[[], Tensor], instruments: Instruments) -> dict[str, Predecessor]:
    """What runs right before a launch, by name."""
    q, k, v = (tensor.cuda() for tensor in inputs(MISSION, "large", seed=1))
    found: dict[str, Predecessor] = {"itself": itself}
    for backend in ("flash", "cudnn", "efficient"):
        found[f"torch SDPA {backend}, large inputs"] = partial(sdpa(MISSION, backend), q, k, v)
    stream = torch.cuda.current_stream().cuda_stream
    for word in FILLS:
        found[f"shared memory filled with 0x{word:08X}"] = partial(instruments.fill_shared, word, stream)
    return found


def row(
    name: str, before: Predecessor, racy: Callable[[], Tensor], want: Tensor, expected: Expected, n: int
) -> dict[str, Any]:
    """`n` launches after one predecessor."""
    wrong, different, worst = 0, 0, 0.0
    output = racy()
    for _ in range(n):
        output.fill_(float("nan"))
        before()
        output = racy()
        errors = judge(output, expected)
        wrong += errors.failed_rule is not None
        different += not same_bits(output, want)
        worst = max(worst, math.inf if errors.nonfinite else errors.max_abs)
    return {
        "predecessor": name,
        "launches": n,
        "out_of_tolerance": wrong,
        "differs_from_right_version": different,
        "worst_error": None if math.isinf(worst) else worst,
    }


def built(mutant: str, line: GatedLine, conditions: Conditions) -> Artifact:
    variant = Variant(family="systemic", backend="cuda", impl="mutant", parameters={"MUTANT": mutant, "BLOCK_N": 32})
    artifact = line.build(variant, conditions)
    assert isinstance(artifact, Artifact), artifact
    return artifact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = DEVICES["cuda"].choose(Wishes()).device
    toolchain = toolchain_for(device)
    assert isinstance(toolchain, CudaToolchain)
    family = Family.load(ROOT / "tests" / "mutants" / "systemic")
    line = cuda_line(toolchain, family)()
    conditions = Conditions(problems=(MISSION,), seeds=(11, 22, 33, 44))
    artifacts = {name: built(name, line, conditions) for name in ("none", "missing_barrier_before_max")}
    truth = compute_truth(Case(name="mission", problem=MISSION, distribution="randn"), 11, "cuda")
    want = launcher(LoadedVariant(artifacts["none"]), truth)().clone()
    racy = launcher(LoadedVariant(artifacts["missing_barrier_before_max"]), truth)
    instruments = Instruments(toolchain, int(device.environment["multiprocessors"]))
    rows = [
        row(name, before, racy, want, truth.outputs[0], options.launches)
        for name, before in predecessors(racy, instruments).items()
    ]
    verdicts = {}
    for name, artifact in artifacts.items():
        fault = line.check(artifact, conditions, lambda _: None).fault
        verdicts[name] = "passed" if fault is None else f"{fault.verdict}: {fault.code}"
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device.name,
        "environment": {**device.environment, **versions()},
        "problem": str(MISSION),
        "tolerance": truth.outputs[0].max_abs_tol,
        "rows": rows,
        "gate": verdicts,
    }
    for each in rows:
        print(
            f"{each['predecessor']:45} wrong {each['out_of_tolerance']:3} of {each['launches']}, bits differ in "
            f"{each['differs_from_right_version']:3}, worst error {each['worst_error']}"
        )
    print(verdicts)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
