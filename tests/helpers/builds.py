"""Builds that must succeed, and launches of what was built."""

import torch
from torch import Tensor

from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.tuning.workbench import Workbench
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault


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
