"""The gate against mutants and right implementations on a GPU, through the real compiler and real processes.

tests/mutants/expected_cuda.toml says what the gate must say of each. One dtype and mask of every mutant is judged in
the fast tests, the others in the slow ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotuner.devices import DEVICES
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.probe import CudaFacts, probe
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.line import Passed
from autotuner.run.local import LocalExecutor
from autotuner.values import config
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers import preload
from tests.helpers.lines import cuda_line
from tests.helpers.mutant_settings import settings
from tests.helpers.stale import STALE, stale
from tests.mutants.expectations import TABLES, Expectation, expectations, family
from tests.mutants.warpgroups import mutants as warpgroups

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timed,  # by the clock of a GPU that other tests use too
    pytest.mark.timeout(900),  # the first test waits for all builds
]


def build_all(toolchain: CudaToolchain, wanted: set[Expectation]) -> None:
    """Builds side by side, so that the executor's one builder finds everything in the cache."""

    def one(each: Expectation) -> None:
        build(family(each.table), each.variant, each.problem, toolchain)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, wanted))


def selected(request: pytest.FixtureRequest) -> set[Expectation]:
    """What the tests of this run judge."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    found = [call.params.get("expectation") for call in calls if call is not None]
    return {each for each in found if isinstance(each, Expectation) and each.backend == "cuda"}


@pytest.fixture(scope="module")
def device() -> CudaToolchain:
    found = probe()
    assert isinstance(found, CudaFacts), found
    return CudaToolchain.discover(architecture(f"sm_{found.sm}"))


@pytest.fixture(scope="module")
def judges(request: pytest.FixtureRequest, device: CudaToolchain) -> Iterator[dict[str, LocalExecutor]]:
    """An executor for each family of mutants, as a session makes it; they share one zygote."""
    build_all(device, selected(request))
    made = {}
    for table in TABLES:
        factory = cuda_line(device, family(table))
        made[table] = LocalExecutor(
            factory, preload.CUDA, overlap=True, jobs_per_process=DEVICES["cuda"].jobs_per_process
        )
    yield made
    for executor in made.values():
        executor.close()


@pytest.mark.parametrize("expectation", settings("cuda", "numeric"))
def test_a_numeric_mutant_is_rejected_for_the_right_reason(
    judges: dict[str, LocalExecutor], expectation: Expectation
) -> None:
    outcome = expectation.judge(judges["numeric"])
    assert expectation.met_by(outcome), outcome.fault


@pytest.mark.parametrize("expectation", settings("cuda", "systemic"))
def test_a_systemic_mutant_costs_its_own_trial_only(judges: dict[str, LocalExecutor], expectation: Expectation) -> None:
    outcome = expectation.judge(judges["systemic"])
    assert expectation.met_by(outcome), outcome.fault


@pytest.mark.parametrize("expectation", settings("cuda", "clock"))
def test_a_mutant_that_cheats_the_clock_is_rejected(judges: dict[str, LocalExecutor], expectation: Expectation) -> None:
    outcome = expectation.judge(judges["clock"])
    assert expectation.met_by(outcome), outcome.fault


def test_a_right_variant_is_judged_as_usual_after_all_that(judges: dict[str, LocalExecutor]) -> None:
    right = next(group[0] for group in expectations("cuda", "systemic") if group[0].name == "none")
    outcome = right.judge(judges["systemic"])
    assert right.met_by(outcome), outcome.fault
    assert outcome.gate is not None
    assert outcome.gate.passed


@pytest.mark.parametrize("expectation", settings("cuda", "right"))
def test_a_right_implementation_passes(judges: dict[str, LocalExecutor], expectation: Expectation) -> None:
    outcome = expectation.judge(judges["right"])
    assert expectation.met_by(outcome), outcome.fault
    assert outcome.gate is not None
    assert outcome.gate.passed


@pytest.mark.parametrize("how", STALE)
def test_a_stale_library_under_a_new_name_is_found(judges: dict[str, LocalExecutor], tmp_path: Path, how: str) -> None:
    known = {group[0].name: group[0] for group in expectations("cuda", "systemic")}
    outcome = stale(judges["systemic"], tmp_path, how, known["returns_status_7"], known["none"])
    assert outcome.fault is not None
    assert outcome.fault.code == "G0.identity"
    assert STALE[how][1] in outcome.fault.detail
    assert outcome.measurement is None


@pytest.mark.parametrize("name", ["none", "last_ticket_left"])
def test_what_a_replay_leaves_behind_is_seen_by_the_next(device: CudaToolchain, tmp_path: Path, name: str) -> None:
    """Blocks of `wgmma` draw their work by a count, which a launch must leave as it was: else the second replay of a
    graph with this one launch finds nothing left to do. A launch of another number begins anew."""
    if device.architecture != "sm_90":
        pytest.skip("wgmma is for sm_90a")
    mutant = next(each for each in warpgroups() if each.name == "last_ticket_left")
    kernels = mutant.family(tmp_path) if name == mutant.name else Family.load(config.kernels_dir() / "sdpa")
    artifact = build(kernels, mutant.variant, mutant.full, device)
    assert isinstance(artifact, Artifact), artifact
    conditions = CONDITIONS.model_copy(update={"problems": (mutant.full,)})
    report = cuda_line(device, kernels)().check(artifact, conditions, lambda _: None)
    code = report.fault and report.fault.code
    assert code == (None if name == "none" else "G4.capture"), report.fault


# Wrong once in thousands of launches ----------------------------------------------------------------------------------

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=8, seq_k=16, head_dim=64, dtype="float16")
CONDITIONS = Conditions(problems=(PROBLEM,), cache="warm", seeds=(1, 2, 3, 4), baselines=("flash",))


def soaked(kernel_root: Path, device: CudaToolchain, every: int, seconds: float) -> tuple[GateReport, GateReport]:
    """The reports of one that is wrong in every so manieth launch: after G6, and after G6.many."""
    rare = Family.load(kernel_root / "rare")
    variant = Variant(family="rare", backend="cuda", impl="counts", parameters={"EVERY": every, "WHEN": "counted"})
    artifact = build(rare, variant, PROBLEM, device)
    assert isinstance(artifact, Artifact), artifact
    line = cuda_line(device, rare)()
    passed = line.check(artifact, CONDITIONS, lambda _: None)
    soaked = line.check(artifact, CONDITIONS, lambda _: None, Passed(passed, "soak"))
    assert soaked.passed, soaked.fault
    return soaked, line.check(artifact, CONDITIONS, lambda _: None, Passed(soaked, "many", seconds))


def test_what_is_wrong_once_in_5000_launches_passes_the_soak_and_is_found_by_many_launches(
    kernel_root: Path, device: CudaToolchain
) -> None:
    soaked_once, found = soaked(kernel_root, device, 5000, 60.0)
    assert found.fault is not None
    assert (found.fault.verdict, found.fault.code) == (Verdict.NONDETERMINISTIC, "G6.many")
    said = re.match(r"launch (\d+) on .* differs from the first on the same input", found.fault.detail)
    assert said is not None, found.fault.detail
    before = sum(check.launches for check in soaked_once.checks)
    assert int(said[1]) <= 5000 - before + 1  # at the very launch; what ran in between counts, too


def test_a_right_kernel_passes_many_launches_which_are_counted(kernel_root: Path, device: CudaToolchain) -> None:
    _, found = soaked(kernel_root, device, 0, 1.0)
    assert found.passed, found.fault
    many = found.checks[-1]
    assert many.launches > 1
    assert many.note == f"launches: {many.launches} on {PROBLEM}"
