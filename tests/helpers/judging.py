"""Variants of the families in tests/kernels, built, launched, and judged by a line as the driver would have it."""

import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge import compiling
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.sanitizer import DEADLINE_S
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.executor import Executor
from autotuner.run.jobs import AnyJob, BuildJob, Built, JudgeJob, Result
from autotuner.run.line import LineFactory
from autotuner.run.local import LocalExecutor
from autotuner.tuning.run.outcomes import RETRIES
from autotuner.tuning.workbench import Workbench
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Device, Outcome
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers import preload

KERNELS = Path(__file__).parent.parent / "kernels"
"""The kernel families made for tests."""
PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=8, seq_k=16, head_dim=64, dtype="float32")


def tiny(impl: str = "plain", **parameters: Value) -> Variant:
    """A variant of the family tiny; for IMPL=plain all parameters have a value."""
    values: dict[str, Value] = {"SIZE": 3}
    if impl == "plain":
        values |= {"MODE": "whole", "DEAD": 1}
    return Variant(family="tiny", backend="cpu", impl=impl, parameters={**values, **parameters})


def compiler(folder: Path, body: str, path: Path | None = None) -> Path:
    """One that does `body` (shell; "$@" are its arguments) and then what g++ does. Its runs are counted in the folder,
    where it lies itself unless a path is given."""
    path = path or folder / "cxx"
    path.write_text(f'#!/bin/sh\necho "$*" >> "{folder}/runs"\n{body}\nexec g++ "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def wrapper(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch, path: Path | None = None) -> Path:
    """The same, and it may write there."""
    made = compiler(folder, body, path)
    monkeypatch.setattr(compiling, "WRITES", (*compiling.WRITES, str(folder), str(made.parent)))
    return made


def runs(folder: Path) -> list[str]:
    """The arguments of each run of that compiler so far."""
    log = folder / "runs"
    return log.read_text().splitlines() if log.exists() else []


CACHE_BYTES = 1 << 20
"""A last-level cache so small that few input sets are cold."""


def cpu_line(toolchain: CpuToolchain, family: Family) -> LineFactory:
    """What makes a line on the CPU."""
    facts = {"L2_BYTES": CACHE_BYTES, "L3_BYTES": CACHE_BYTES}
    device = Device(backend="cpu", name="a CPU", facts=facts, environment={})
    return LineFactory(device, toolchain, family)


def cuda_line(toolchain: CudaToolchain, family: Family) -> LineFactory:
    """What makes a line on the GPU that is here."""
    device = Device(backend="cuda", name="a GPU", facts={}, environment={})
    return LineFactory(device, toolchain, family)


@contextmanager
def cpu_judge(toolchain: CpuToolchain, family: Family, **more: Any) -> Iterator[LocalExecutor]:
    """An executor that judges variants of the family on the CPU. `more`: what else an executor takes."""
    with closing(LocalExecutor(cpu_line(toolchain, family), preload.CPU, **more)) as made:
        yield made


def artifact_of(built: Artifact | Fault) -> Artifact:
    """What was built. Raises AssertionError with the fault where nothing was."""
    assert isinstance(built, Artifact), built
    return built


def default_of(here: Workbench) -> Artifact:
    """The default variant of a space, built."""
    (built,) = here.build_all([here.space.default_index])
    return artifact_of(built)


def launched(variant: LoadedVariant, problem: Problem, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """One launch on the CPU, with the workspace that it wants."""
    wanted = variant.workspace_bytes(problem)
    workspace = torch.zeros(wanted + 64, dtype=torch.uint8)
    assert variant.run(problem, inputs, outputs, -(-workspace.data_ptr() // 64) * 64, wanted) == 0


Soak = Literal["never", "promoted", "chosen"]


def briefly(
    problem: Problem, seeds: tuple[int, ...] = (11, 22, 33, 44), baseline: str = "flash", blocks: int = 2
) -> Conditions:
    """Conditions under which a race on the problem is short: 2 blocks are the fewest that it may have."""
    common = {"problems": (problem,), "cache": "warm", "seeds": seeds, "baselines": (baseline,)}
    return Conditions.model_validate({**common, "min_blocks": blocks, "max_blocks": blocks})


def result(executor: Executor, job: AnyJob, seconds: float = 300) -> Result:
    """What comes of a job where nothing else is in the executor."""
    executor.submit(job)
    done = executor.wait(seconds)
    assert done is not None
    return done[1]


def judged(
    executor: Executor, variant: Variant, conditions: Conditions, soak: Soak = "promoted", many_s: float = 10
) -> Outcome:
    """The variant's outcome. Nothing else may be in the executor. As the driver does, it tries again what a disturbed
    machine or a lost process ended. `many_s`: seconds of launches of one that is chosen."""
    for _ in range(RETRIES + 1):
        outcome = _once(executor, variant, conditions, soak, many_s)
        if outcome.verdict not in (Verdict.DISTURBED, Verdict.INFRA_ERROR):
            break
    return outcome


def _once(executor: Executor, variant: Variant, conditions: Conditions, soak: Soak, many_s: float) -> Outcome:
    found = result(executor, BuildJob(variant=variant, conditions=conditions))
    if isinstance(found, Built):
        chosen = soak == "chosen"
        job = JudgeJob(built=found, conditions=conditions, soak=soak, many_s=many_s, fresh=chosen)
        found = result(executor, job, 120 + many_s + (DEADLINE_S if chosen else 0))
    assert isinstance(found, Outcome)
    return found
