"""What the launches of the variant to use find (G6.many), on kernels whose rate of error is known and on right ones.

    python -m benchmarks.gate.soak [--backend cpu|cuda] [--seconds 10] [--runs 3] [--json docs/results/soak_cpu.json]
        [--hold]

Each kernel goes through the gate, G0 to G5, then G6 as before a promotion, then G6.many for so many seconds, without a
race. tests/kernels/rare is wrong in each launch with a known probability, drawn anew each time, or never; the shipped
kernels' default, on the problems of its space, is right. What must hold: the right ones pass, and no rate is missed
that so many launches miss once in 10,000 times.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.devices import DEVICES, Wishes
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.toolchain import Toolchain
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.line import GatedLine, GateLevel, LineFactory, Passed
from autotuner.tuning.trial_report import RULE_OF_THREE
from autotuner.tuning.workbench import Workbench, load_space, toolchain_for
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Device
from autotuner.values.variant import Value, Variant
from benchmarks import holds
from benchmarks.provenance import ROOT, command_line

RARE = ROOT / "tests" / "kernels" / "rare"
EVERY = (0, 1_000, 5_000, 20_000, 100_000, 1_000_000)
"""A launch is wrong with probability 1 / EVERY, or never."""
SPACES = {"cpu": "sdpa_cpu", "cuda": "sdpa_cuda"}
DTYPES = {"cpu": "float32", "cuda": "float16"}
LEVELS: tuple[GateLevel, ...] = ("soak", "many")
UNLIKELY = 1e-4
"""What is missed with less than this probability must be found."""


class Kernel(NamedTuple):
    """One kernel, built for what it is launched on."""

    name: str
    every: int
    line: GatedLine
    artifact: Artifact
    conditions: Conditions


class Machine(NamedTuple):
    """Where kernels are built and launched."""

    device: Device
    toolchain: Toolchain

    def made(self, name: str, every: int, family: Family, variant: Variant, conditions: Conditions) -> Kernel:
        """The kernel, ready to be judged in this process. Raises RuntimeError where it cannot be built."""
        built = build(family, variant, conditions.compiled_for, self.toolchain)
        if not isinstance(built, Artifact):
            raise RuntimeError(f"{name} cannot be built: {built.detail}")
        return Kernel(name, every, LineFactory(self.device, self.toolchain, family)(), built, conditions)


def kernels(machine: Machine) -> Iterator[Kernel]:
    """The shipped default and the planted ones. Raises RuntimeError for one that cannot be built."""
    backend = machine.device.backend
    workbench = Workbench(load_space(SPACES[backend]))
    default = workbench.variant(workbench.space.default_index)
    name = f"the default of {SPACES[backend]}"
    yield machine.made(name, 0, workbench.family, default, workbench.conditions)
    problem = SdpaProblem(batch=1, heads=2, seq_q=8, seq_k=16, head_dim=64, dtype=DTYPES[backend])
    conditions = Conditions(problems=(problem,), cache="warm", seeds=(1, 2, 3, 4), baselines=("flash",))
    for every in EVERY:
        parameters: dict[str, Value] = {"EVERY": every, "WHEN": "drawn"}
        variant = Variant(family="rare", backend=backend, impl="counts", parameters=parameters)
        name = f"wrong once in {every:,}" if every else "never wrong"
        yield machine.made(name, every, Family.load(RARE), variant, conditions)


def quiet(_: str) -> None:
    """Nobody hears of the steps."""


def soaked(kernel: Kernel, seconds: float) -> GateReport:
    """The report on a kernel up to the first failure."""
    line, artifact, conditions = kernel.line, kernel.artifact, kernel.conditions
    report = line.check(artifact, conditions, quiet)
    for level in LEVELS:
        if report.passed:
            report = line.check(artifact, conditions, quiet, Passed(report, level, seconds))
    return report


def row(kernel: Kernel, seconds: float) -> dict[str, Any]:
    """What was found of it."""
    started = time.monotonic()
    report = soaked(kernel, seconds)
    many = next((check for check in report.checks if check.code == codes.MANY), None)
    launches = many.launches if many is not None else 0
    return {
        "kernel": kernel.name,
        "every": kernel.every,
        "problems": [str(problem) for problem in kernel.conditions.problems],
        "found": report.fault.code if report.fault is not None else "pass",
        "detail": report.fault.detail if report.fault is not None else "",
        "launches_before": sum(check.launches for check in report.checks if check is not many),
        "launches": launches,
        "seconds": round(many.seconds, 2) if many is not None else None,
        "could_miss": RULE_OF_THREE / launches if launches and report.passed else None,
        "whole_seconds": round(time.monotonic() - started, 2),
    }


def unmet(found: dict[str, Any]) -> str | None:
    """What does not hold of a row."""
    if not found["every"]:
        return None if found["found"] == "pass" else f"{found['kernel']}: {found['found']}, {found['detail']}"
    missed = (1 - 1 / found["every"]) ** found["launches"]
    if found["found"] != "pass" or missed >= UNLIKELY:
        return None
    return f"{found['kernel']}: not found in {found['launches']:,} launches"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=sorted(SPACES), default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0, help="of launches of a kernel that is not found before")
    parser.add_argument("--runs", type=int, default=3, help="of each kernel")
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    device = DEVICES[options.backend].choose(Wishes()).device
    toolchain = toolchain_for(device)
    rows: list[dict[str, Any]] = []
    for kernel in kernels(Machine(device, toolchain)):
        for _ in range(options.runs):
            rows.append(row(kernel, options.seconds))
            print(json.dumps(rows[-1]), flush=True)
    holds.measured([each["kernel"] for each in rows], "kernel")
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device.name,
        "environment": device.environment,
        "compiler": toolchain.version,
        "seconds": options.seconds,
        "rows": rows,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require([said for each in rows if (said := unmet(each)) is not None])


if __name__ == "__main__":
    main()
