"""The gate against mutants and right implementations on the CPU, through the real compiler and real processes.

tests/mutants/expected.toml says what the gate must say of each. One dtype and mask of every second systemic mutant,
sixth numeric mutant and fifth right implementation is judged in the fast tests, others of each in the slow ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from autotuner.build.family import Kernel
from autotuner.devices.settings import CpuSettings, make_cpu_backend
from autotuner.devices.toolchain import Toolchain
from autotuner.report.trial_words import outcome_words
from autotuner.run.jobs import Built, JudgeJob
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.values.outcome import Artifact, Outcome
from tests.mutants.expectations import MUTANTS, TABLES, Backend, Expectation, entries, expectations

HUNG_AFTER_S = 2
"""What hangs is known to hang: no test waits longer for it. Others have as long as they have in a sweep."""


def settings(backend: Backend, table: str, every: int = 1) -> list[object]:
    """Two settings of each entry, going round. The first of one in `every` entries is fast, the others are slow.

    benchmarks/mutants.py judges all settings.
    """
    chosen: list[object] = []
    for index, group in enumerate(expectations(backend, table)):
        for turn in range(min(2, len(group))):
            expectation = group[(index // every + turn) % len(group)]
            marks = [] if turn == 0 and index % every == 0 else [pytest.mark.slow]
            chosen.append(pytest.param(expectation, id=str(expectation), marks=marks))
    return chosen


@pytest.fixture(scope="module")
def judges(toolchain: Toolchain) -> Iterator[dict[str, LocalExecutor]]:
    """An executor for each family of mutants, and one for those that hang; they share one zygote."""
    made = {}
    for table in TABLES:
        kernel = Kernel.load(MUTANTS / table)
        factory = partial(make_cpu_backend, CpuSettings(toolchain=toolchain, kernel=kernel, cache_bytes=1 << 20))
        made[table] = LocalExecutor(factory, preload=("autotuner.devices.cpu.device",))
        if table == "systemic":
            deadlines = Deadlines(check=HUNG_AFTER_S)
            made["hung"] = LocalExecutor(factory, preload=("autotuner.devices.cpu.device",), deadlines=deadlines)
    yield made
    for executor in made.values():
        executor.close()


@pytest.mark.parametrize("expectation", settings("cpu", "numeric", every=6))
def test_a_numeric_mutant_is_rejected_for_the_right_reason(
    judges: dict[str, LocalExecutor], expectation: Expectation
) -> None:
    outcome = expectation.judge(judges["numeric"])
    assert expectation.met_by(outcome), outcome.fault


@pytest.mark.parametrize("expectation", settings("cpu", "systemic", every=2))
def test_a_systemic_mutant_costs_its_own_trial_only(judges: dict[str, LocalExecutor], expectation: Expectation) -> None:
    outcome = expectation.judge(judges["hung" if expectation.codes == ("hung",) else "systemic"])
    assert expectation.met_by(outcome), outcome.fault


@pytest.mark.parametrize("expectation", settings("cpu", "right", every=8))
def test_a_right_implementation_passes(judges: dict[str, LocalExecutor], expectation: Expectation) -> None:
    outcome = expectation.judge(judges["right"])
    assert expectation.met_by(outcome), outcome.fault
    assert outcome.gate is not None
    assert outcome.gate.passed


@pytest.mark.slow
@pytest.mark.parametrize("expectation", [group[0] for group in expectations("cpu", "right")], ids=str)
def test_a_right_implementation_passes_under_any_seeds(
    judges: dict[str, LocalExecutor], expectation: Expectation
) -> None:
    for first in (100, 200):  # four seeds each; benchmarks/mutants.py judges them under many more
        outcome = expectation.judge(judges["right"], (first, first + 1, first + 2, first + 3))
        assert expectation.met_by(outcome), (first, outcome.fault)


@pytest.mark.parametrize(
    ("table", "name", "depends"),
    [
        ("systemic", "accumulator_from_workspace", True),
        ("systemic", "max_from_workspace", True),
        ("numeric", "last_row_unwritten", False),
        ("numeric", "scale_off", False),
    ],
)
def test_what_depends_on_what_memory_held_is_said_to(
    judges: dict[str, LocalExecutor], table: str, name: str, depends: bool
) -> None:
    found = {group[0].name: group[0] for group in expectations("cpu", table)}
    outcome = found[name].judge(judges[table])
    assert outcome.fault is not None
    assert outcome.gate is not None
    assert outcome.gate.checks[-1].stale == (depends and not outcome.fault.code.startswith("G3"))
    assert ("what memory held before" in "\n".join(outcome_words(outcome))) == outcome.gate.checks[-1].stale


# A stale library ----------------------------------------------------------------------------------------------------

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
        executor.submit(expectation.build_job())
        done = executor.wait(300)
        assert done is not None
        assert isinstance(done[1], Built), done[1]
        found.append(done[1].artifact)
    artifact = replaced(found[0], found[1], folder, STALE[how][0])
    executor.submit(JudgeJob(built=Built(artifact=artifact, seconds=0.0), terms=wanted.terms(), soak="never"))
    done = executor.wait(120)
    assert done is not None
    assert isinstance(done[1], Outcome)
    return done[1]


def replaced(wanted: Artifact, other: Artifact, folder: Path, fields: tuple[str, ...]) -> Artifact:
    """The record of `wanted`, but for the fields that are those of `other`, whose library lies where it points."""
    path = shutil.copy(other.path, folder / Path(wanted.path).name)
    return wanted.model_copy(update={"path": str(path), **{field: getattr(other, field) for field in fields}})


@pytest.mark.parametrize("how", STALE)
def test_a_stale_library_under_a_new_name_is_found(judges: dict[str, LocalExecutor], tmp_path: Path, how: str) -> None:
    known = {group[0].name: group[0] for group in expectations("cpu", "systemic")}
    outcome = stale(judges["systemic"], tmp_path, how, known["prints"], known["none"])
    assert outcome.fault is not None
    assert outcome.fault.code == "G0.identity"
    assert STALE[how][1] in outcome.fault.detail
    assert outcome.measurement is None


# The lists ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_lists_are_long_enough(backend: Backend) -> None:
    found = {table: {entry["name"] for entry in entries(backend, table)} for table in TABLES}
    assert len(found["numeric"]) > 40
    assert len(found["systemic"]) > 12
    assert len(found["right"]) >= 8


def test_every_numeric_mutant_is_judged_on_cuda_too_or_said_to_be_unseen() -> None:
    """By name: in what dtype and mask, each backend's file says."""
    cpu, cuda = (
        {entry["name"] for table in ("numeric", "unseen") for entry in entries(backend, table)}
        for backend in ("cpu", "cuda")
    )
    assert cpu == cuda
