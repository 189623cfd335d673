"""A library of one variant where that of another is expected."""

import shutil
from pathlib import Path

from autotuner.run.jobs import Built, JudgeJob
from autotuner.run.local import LocalExecutor
from autotuner.values.outcome import Artifact, Outcome
from tests.helpers.judging import result
from tests.mutants.expectations import Expectation

STALE = {
    "under another name": ((), "cannot be loaded"),
    "with its own name": (("name",), "is not the library that was built"),
    "with a record that fits": (("library_sha256",), "cannot be loaded"),
    "with name and record that fit": (("library_sha256", "name"), "reports build_id"),
}
"""How the library of one variant may come to lie where that of another is expected: which fields of the record are its
own, and what the gate says."""


def stale(executor: LocalExecutor, folder: Path, how: str, wanted: Expectation, other: Expectation) -> Outcome:
    """The outcome of `wanted` where the library of `other` lies under its file name."""
    found = []
    for expectation in (wanted, other):
        built = result(executor, expectation.build_job())
        assert isinstance(built, Built), built
        found.append(built.artifact)
    artifact = replaced(found[0], found[1], folder, STALE[how][0])
    built = Built(artifact=artifact, seconds=0.0)
    judged = result(executor, JudgeJob(built=built, conditions=wanted.conditions(), soak="never"), 120)
    assert isinstance(judged, Outcome)
    return judged


def replaced(wanted: Artifact, other: Artifact, folder: Path, fields: tuple[str, ...]) -> Artifact:
    """The record of `wanted`, but for the fields that are those of `other`, whose library lies where it points."""
    path = shutil.copy(other.path, folder / Path(wanted.path).name)
    return wanted.model_copy(update={"path": str(path), **{field: getattr(other, field) for field in fields}})
