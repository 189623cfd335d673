"""What the gate says on a GPU beyond what it says of each mutant (tests/conformance/test_devices.py)."""

import re
from pathlib import Path

import pytest

from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.line import Passed
from autotuner.values import config
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers.judging import KERNELS, artifact_of, cuda_line
from tests.mutants.warpgroups import mutants as warpgroups

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timed,  # by the clock of a GPU that other tests use too
]


@pytest.mark.parametrize("name", ["none", "last_ticket_left"])
def test_what_a_replay_leaves_behind_is_seen_by_the_next(device: CudaToolchain, tmp_path: Path, name: str) -> None:
    """Blocks of `wgmma` draw their work by a count, which a launch must leave as it was: else the second replay of a
    graph with this one launch finds nothing left to do. A launch of another number begins anew."""
    if device.architecture != "sm_90":
        pytest.skip("wgmma is for sm_90a")
    mutant = next(each for each in warpgroups() if each.name == "last_ticket_left")
    kernels = mutant.family(tmp_path) if name == mutant.name else Family.load(config.kernels_dir() / "sdpa")
    artifact = artifact_of(build(kernels, mutant.variant, mutant.full, device))
    conditions = CONDITIONS.model_copy(update={"problems": (mutant.full,)})
    report = cuda_line(device, kernels)().check(artifact, conditions, lambda _: None)
    code = report.fault and report.fault.code
    assert code == (None if name == "none" else "G4.capture"), report.fault


# Wrong once in thousands of launches ----------------------------------------------------------------------------------

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=8, seq_k=16, head_dim=64, dtype="float16")
CONDITIONS = Conditions(problems=(PROBLEM,), cache="warm", seeds=(1, 2, 3, 4), baselines=("flash",))


def soaked(device: CudaToolchain, every: int, seconds: float) -> tuple[GateReport, GateReport]:
    """The reports of one that is wrong in every so manieth launch: after G6, and after G6.many."""
    rare = Family.load(KERNELS / "rare")
    variant = Variant(family="rare", backend="cuda", impl="counts", parameters={"EVERY": every, "WHEN": "counted"})
    artifact = artifact_of(build(rare, variant, PROBLEM, device))
    line = cuda_line(device, rare)()
    passed = line.check(artifact, CONDITIONS, lambda _: None)
    soaked = line.check(artifact, CONDITIONS, lambda _: None, Passed(passed, "soak"))
    assert soaked.passed, soaked.fault
    return soaked, line.check(artifact, CONDITIONS, lambda _: None, Passed(soaked, "many", seconds))


def test_what_is_wrong_once_in_5000_launches_passes_the_soak_and_is_found_by_many_launches(
    device: CudaToolchain,
) -> None:
    soaked_once, found = soaked(device, 5000, 60.0)
    assert (found.fault.verdict, found.fault.code) == (Verdict.NONDETERMINISTIC, "G6.many")
    said = re.match(r"launch (\d+) on .* differs from the first on the same input", found.fault.detail)
    assert said is not None, found.fault.detail
    before = sum(check.launches for check in soaked_once.checks)
    assert int(said[1]) <= 5000 - before + 1  # at the very launch; what ran in between counts, too


def test_a_right_kernel_passes_many_launches_which_are_counted(device: CudaToolchain) -> None:
    _, found = soaked(device, 0, 1.0)
    assert found.passed, found.fault
    many = found.checks[-1]
    assert many.launches > 1
    assert many.note == f"launches: {many.launches} on {PROBLEM}"
