"""Builds that must succeed."""

from autotuner.tuning.workbench import Workbench
from autotuner.values.outcome import Artifact
from autotuner.values.verdict import Fault


def artifact_of(built: Artifact | Fault) -> Artifact:
    """What was built. Raises AssertionError with the fault where nothing was."""
    assert isinstance(built, Artifact), built
    return built


def default_of(here: Workbench) -> Artifact:
    """The default variant of a space, built."""
    (built,) = here.build_all([here.space.default_index])
    return artifact_of(built)
