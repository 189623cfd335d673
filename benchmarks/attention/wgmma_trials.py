"""Puts IMPL = wgmma to harder tests on this GPU than a gate has time for.

    python -m benchmarks.attention.wgmma_trials mutants [--json docs/results/mutants_wgmma.json]
    python -m benchmarks.attention.wgmma_trials stress [--points N] [--problem TEXT]... [--json FILE]

mutants: what the gate says of those of tests/mutants/warpgroups.toml. stress: 1,000 launches back to back at N random
points of the space on each problem, which must all give the same bits, near those of flash attention. Needs a GPU of
compute capability 9.0 that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from autotuner.forge.build import build
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import moved
from autotuner.run.executor import Executor
from autotuner.run.jobs import Built, JudgeJob
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.outcome import Artifact, Outcome
from autotuner.values.verdict import Fault
from benchmarks.attention.interleaved import Figures, baseline_forward, variant_forward
from benchmarks.provenance import command_line
from tests.mutants.warpgroups import Mutant, mutants

PROBLEMS = (
    "(1,32,2048,128) float16 full",
    "(4,16,1024,64) float16 causal",
    "(2,8,777,256) bfloat16 causal",
    "(2,8,777,96) bfloat16 full",
)
LAUNCHES = 1000
COMPARED = 50
"""Launches without a pause; then the last output is compared and poisoned."""
LONGEST_S = 3.0
"""Seconds of launches on a point; where these are fewer than LAUNCHES, as many as that."""


def room(text: str) -> Workbench:
    """The space of wgmma on one problem."""
    return Workbench(load_space("sdpa_cuda", problems=[text]).only("wgmma"))


def judged(executor: Executor, mutant: Mutant, built: Artifact | Fault) -> Figures:
    """The gate's word on a mutant, up to and with a long soak."""
    if isinstance(built, Fault):
        return {"verdict": str(built.verdict), "fault": f"{built.code}: {built.detail}"}
    conditions = Conditions(problems=(mutant.full,), seeds=fresh_seeds(), baselines=("flash",), max_blocks=24)
    executor.submit(JudgeJob(built=Built(artifact=built, seconds=0.0), conditions=conditions, soak="finalist"))
    while (done := executor.wait(60)) is None:
        pass
    outcome = done[1]
    if not isinstance(outcome, Outcome):
        return {"fault": str(outcome)}
    fault = outcome.fault
    said = {} if fault is None else {"fault": f"{fault.code} {fault.case or ''}: {fault.detail}"}
    return {"verdict": str(outcome.verdict), **said}


def judged_mutants() -> list[Figures]:
    """A row a mutant, at a problem that fills a GPU and can yet be soaked."""
    bench, found = room(PROBLEMS[0]), list[Figures]()
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(os.cpu_count()) as builders,
        closing(bench.executor()) as executor,
    ):

        def made(mutant: Mutant) -> Artifact | Fault:
            return build(mutant.family(Path(folder)), mutant.variant, mutant.full, bench.toolchain)

        for mutant, built in zip(mutants(), builders.map(made, mutants()), strict=True):
            row = judged(executor, mutant, built)
            code = str(row.get("fault", "pass")).split()[0].rstrip(":")
            as_expected = code in (mutant.gate or ("pass",))
            found.append({"name": mutant.name, "what": mutant.what, "as_expected": as_expected, **row})
            print(mutant.name, row.get("verdict"), str(row.get("fault"))[:100], flush=True)
    return found


def stress(text: str, points: int) -> Figures:
    """The first output is compared with that of flash attention, the others must equal it."""
    bench, problem, draw = room(text), SdpaProblem.parse(text), random.Random(25)
    chosen = bench.build_all([draw.randrange(len(bench.space)) for _ in range(points)])
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    expected: Any = baseline_forward("flash", problem, [inputs])(0)
    found: Figures = {"points": points, "refused": 0, "launches": 0, "differ": 0, "from_flash": 0.0}
    for built in chosen:
        if isinstance(built, Fault):
            found["refused"] += 1
            continue
        launch, outputs = variant_forward(built, problem, [inputs])
        started, first = time.monotonic(), None
        for number in range(1, LAUNCHES + 1):
            launch(0)
            if number % COMPARED == 1 or number == LAUNCHES:
                first = outputs[0].clone() if first is None else first
                found["differ"] += int(not torch.equal(first, outputs[0]))
                outputs[0].fill_(float("nan"))
                if time.monotonic() - started > LONGEST_S:
                    break
        found["launches"] += number
        assert first is not None
        far = float((first - (expected[0] if isinstance(expected, tuple) else expected)).abs().max())
        found["from_flash"] = max(found["from_flash"], far)
    print(problem, found, flush=True)
    return found


def main() -> None:
    """Prints a line a mutant, or a problem, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["mutants", "stress"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--problem", action="append", metavar="TEXT", help=f"of those of stress; else {PROBLEMS}")
    parser.add_argument("--points", type=int, default=50)
    given = parser.parse_args()
    document: Figures = {"commands": [command_line()], "when": datetime.now(UTC).isoformat(timespec="seconds")}
    bench = room(PROBLEMS[0])
    document |= {"device": bench.device.name, "environment": bench.device.environment}
    document["compiler"] = bench.toolchain.version
    if given.step == "mutants":
        document["mutants"] = judged_mutants()
    else:
        document["stress"] = {text: stress(text, given.points) for text in given.problem or PROBLEMS}
    if given.json is not None:
        given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
