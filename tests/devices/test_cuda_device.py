"""The CUDA backend on a real GPU: right variants pass the gate, what it says beyond what it says of each mutant
(tests/conformance/test_devices.py), and numbers are sane."""

import gc
import math
import re
import time
from pathlib import Path
from statistics import fmean, median

import pytest
import torch

from autotuner.devices.cuda.captured import captured
from autotuner.devices.cuda.guarded_memory import Arena, damage
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.race.audit import KEPT, looked_at
from autotuner.race.blocks import LongStep
from autotuner.race.heat import heat
from autotuner.race.race import Incumbent, measure
from autotuner.race.tie import ratios_between
from autotuner.run.line import GatedLine, Passed
from autotuner.tuning.workbench import Workbench
from autotuner.values import config
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Measurement
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Verdict
from benchmarks.timing.audits import raced_before
from benchmarks.timing.disturbance import disturbed
from tests.helpers.judging import KERNELS, artifact_of, cuda_line
from tests.helpers.points import alone, chosen, first_of
from tests.mutants.warpgroups import mutants as warpgroups

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timed,  # by the clock of a GPU that other tests use too
]
SYSTEMIC = Path(__file__).parent.parent / "mutants" / "systemic"
PROBLEM = SdpaProblem(batch=1, heads=4, seq_q=128, seq_k=128, head_dim=64, dtype="float16")


@pytest.fixture(scope="module")
def backend(device: CudaToolchain) -> GatedLine:
    return cuda_line(device, Family.load(SYSTEMIC))()


@pytest.fixture(scope="module")
def conditions(backend: GatedLine) -> Conditions:
    return calibrated(backend)


@pytest.fixture
def fresh(backend: GatedLine) -> Conditions:
    """Calibrated by this test, so that one that runs again alone is not held to a time taken beside others."""
    return calibrated(backend)


def calibrated(backend: GatedLine) -> Conditions:
    bare = Conditions(problems=(PROBLEM,), seeds=(11, 12, 13, 14))
    calibration = backend.calibrate(bare, print)
    return bare.model_copy(update={"baselines": calibration.baselines, "baseline_us": calibration.baseline_us})


def variant(mutant: str, impl: str = "mutant", **more: Value) -> Variant:
    values: dict[str, Value] = {"MUTANT": mutant, "BLOCK_N": 32, **more}
    return Variant(family="systemic", backend="cuda", impl=impl, parameters=values)


def built(backend: GatedLine, conditions: Conditions, wanted: Variant) -> Artifact:
    return artifact_of(backend.build(wanted, conditions))


def judged(backend: GatedLine, conditions: Conditions, wanted: Variant) -> GateReport:
    return backend.check(built(backend, conditions, wanted), conditions, lambda _: None)


@pytest.mark.parametrize("update", [{}, {"causal": True}, {"dtype": "bfloat16"}, {"head_dim": 128}])
def test_a_right_variant_passes(backend: GatedLine, conditions: Conditions, update: dict[str, Value]) -> None:
    here = conditions.model_copy(update={"problems": (PROBLEM.model_copy(update=update),)})
    report = judged(backend, here, variant("none"))
    assert report.fault is None, report.fault
    assert report.passed
    assert {"G4.stream", "G4.capture"} <= {check.code for check in report.checks}


def test_a_right_variant_of_fixed_lengths_passes_at_its_own(backend: GatedLine, conditions: Conditions) -> None:
    report = judged(backend, conditions, variant("none", "fixed", DEAD=1, FIXED=1))
    assert report.fault is None, report.fault
    assert report.passed
    assert "G3.domain" in {check.code for check in report.checks}


def test_a_variant_is_measured_against_the_pinned_baseline(backend: GatedLine, fresh: Conditions) -> None:
    artifact = built(backend, fresh, variant("none"))
    measured = measure(backend.tracks(fresh), artifact, None, fresh, lambda _: None)
    assert isinstance(measured, Measurement), measured
    timing = measured.timings[0]
    assert timing.baseline == fresh.baselines[0]
    assert 1 < min(timing.variant_us) < 10_000
    assert measured.cache == "cold"
    assert timing.calls[0] > 100  # as many as it takes to leave the second-level cache


@pytest.mark.alone
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 6, 8])
def test_an_audit_accuses_nobody_where_its_refills_just_fill_the_cache(batch: int) -> None:
    """What is fresh is drawn elsewhere, and passes through the second-level cache: of refills that would stay there
    it leaves fewer, so that all variants of such a problem kept results."""
    bench = Workbench(alone("mma", f"({batch},1,87,128) float16 causal"))
    assert isinstance(bench.toolchain, CudaToolchain)
    line = cuda_line(bench.toolchain, bench.family)()
    artifact = built(line, bench.conditions, bench.variant(bench.space.default_index))
    (track,) = line.tracks(bench.conditions)
    arms = track.audit(artifact, "efficient")
    times = looked_at(arms, track, LongStep(print, "audit"), raced_before(arms))
    assert times.why(track.problem, track.gap) is None
    assert median(times.fresh) - median(times.still) < KEPT / 2 * times.plain_s  # whatever the baseline shows


@pytest.mark.alone
def test_a_variant_against_its_second_load_is_a_tie(backend: GatedLine, fresh: Conditions) -> None:
    artifact = built(backend, fresh, variant("none"))
    raced = heat(backend.tracks(fresh), (artifact, artifact), 12, fresh, lambda _: None)
    assert not raced.faults
    assert abs(fmean(ratios_between(raced, 0, 1))) < math.log(1.03)


@pytest.mark.alone
def test_the_incumbent_races_beside_the_candidate(backend: GatedLine, fresh: Conditions) -> None:
    artifact = built(backend, fresh, variant("none"))
    measured = measure(backend.tracks(fresh), artifact, Incumbent(artifact), fresh, lambda _: None)
    assert isinstance(measured, Measurement), measured
    assert abs(measured.gain.mid) < math.log(1.03)
    assert len(measured.timings[0].incumbent_us) == len(measured.timings[0].variant_us)


def test_new_seeds_are_new_inputs(backend: GatedLine, conditions: Conditions) -> None:
    """A process that serves another study, with other secrets, times on its inputs."""
    artifact = built(backend, conditions, variant("none"))
    for seeds in (conditions.seeds, (11, 12, 13, 14)):
        here = conditions.model_copy(update={"seeds": seeds})
        assert isinstance(measure(backend.tracks(here), artifact, None, here, lambda _: None), Measurement)


def test_what_the_device_can_do_is_measured(backend: GatedLine, conditions: Conditions) -> None:
    ceilings = backend.calibrate(conditions, lambda _: None).ceilings
    assert ceilings.flops > 1e13
    assert ceilings.bytes > 1e11


@pytest.mark.parametrize("impl", ["scalar", "cublas", "wmma", "mma", "decode"])
def test_every_shipped_implementation_passes(impl: str) -> None:
    workbench = Workbench(alone(impl))
    assert isinstance(workbench.toolchain, CudaToolchain)
    backend = cuda_line(workbench.toolchain, workbench.family)()
    wanted = workbench.variant(first_of(workbench.space, impl))
    tuned = workbench.conditions.compiled_for
    assert isinstance(tuned, SdpaProblem)
    other = 64 if tuned.head_dim == 128 else 128
    for update in ({}, {"causal": True}, {"dtype": "bfloat16"}, {"head_dim": other}):
        problem = tuned.model_copy(update=update)
        here = workbench.conditions.model_copy(update={"problems": (problem,)})
        report = judged(backend, here, wanted)
        assert report.passed, (problem, report.fault)
        soaked = backend.check(built(backend, here, wanted), here, lambda _: None, Passed(report, "soak"))
        assert soaked.fault is None, (problem, soaked.fault)


def require_every_level(workbench: Workbench, wanted: Variant) -> None:
    """The variant passes the gate, its soak and many launches."""
    assert isinstance(workbench.toolchain, CudaToolchain)
    backend = cuda_line(workbench.toolchain, workbench.family)()
    artifact = built(backend, workbench.conditions, wanted)
    report = backend.check(artifact, workbench.conditions, lambda _: None)
    assert report.passed, report.fault
    for level in ("soak", "many"):
        report = backend.check(artifact, workbench.conditions, lambda _: None, Passed(report, level, 1.0))
        assert report.fault is None, report.fault


@pytest.mark.parametrize(("load", "lengths"), [("cp_async", ""), ("cp_async", " lengths"), ("tma", "")])
def test_a_right_variant_of_views_passes_every_level(load: str, lengths: str) -> None:
    """In memory of their own, outputs lie in rows apart; and K and V of all batches may be the same."""
    problem = f"(2,4,128,64) float16 full{lengths} bshd"
    workbench = Workbench(alone("mma", problem))
    require_every_level(workbench, workbench.variant(chosen(workbench.space, {"LOAD": load})))


WARPGROUPS: dict[str, dict[str, Value]] = {
    "(2,4,128,64) float16 full bshd": {},
    "(2,8:2,256,64) float16 causal packed": {"SCHEDULE": "dynamic", "Q_BUFFERS": 2},
    "(2,8:1,256,128) bfloat16 full": {"SCHEDULE": "tile"},
    "(2,8:2,256,128) float16 causal bshd lse": {"SOFTMAX": "exact", "Q_FROM": "registers"},
    "(2,4,256x512,64) bfloat16 full bshd lse": {"SOFTMAX": "exact", "EARLY_START": 1, "Q_BUFFERS": 2, "PING_PONG": 0},
}


@pytest.mark.parametrize("problem", WARPGROUPS)
def test_warpgroup_products_of_views_and_groups_pass_every_level(problem: str, device: CudaToolchain) -> None:
    if device.architecture != "sm_90":
        pytest.skip("needs sm_90")
    workbench = Workbench(alone("wgmma", problem))
    require_every_level(workbench, workbench.variant(chosen(workbench.space, WARPGROUPS[problem])))


def test_a_graph_that_nobody_holds_goes_after_a_capture_not_during_it() -> None:
    x, graph, before = torch.zeros(64, device="cuda"), torch.cuda.CUDAGraph(), gc.get_threshold()
    gc.collect()  # what is made from now on is young
    gc.disable()
    other = torch.cuda.CUDAGraph()
    with captured(other):
        x.add_(0)
    gone: list[object] = [other]
    gone.append(gone)
    del other
    gc.enable()
    try:
        with captured(graph):
            del gone
            gc.set_threshold(1)  # where there is a collector it comes with the next list
            made = [[x.add_(1)] for _ in range(100)]
    finally:
        gc.set_threshold(*before)
    graph.replay()
    assert float(x[0]) == len(made)


def test_what_is_written_between_tensors_is_found() -> None:
    arena = Arena()
    words = [arena.take(1000), arena.take(2000, shift=16)]
    assert words[1].data_ptr() % 64 == 16
    assert damage(arena.bands()) is None
    again = arena.take(1000)
    flat = torch.as_strided(again, (again.numel() + 3,), (1,), again.storage_offset())
    flat[-1] = 0
    assert "past a tensor's end" in str(damage(arena.bands()))
    arena.restore()
    arena.take(1000)
    assert damage(arena.bands()) is None


@pytest.mark.alone
@pytest.mark.parametrize("text", [str(PROBLEM), "(1,8,512,64) float16 full"])
def test_a_program_that_has_the_gpu_in_turns_is_noticed(backend: GatedLine, conditions: Conditions, text: str) -> None:
    """A sample that outlasts a turn takes longer by itself, and a shorter one does not: then the track notices."""
    (track,) = backend.tracks(Conditions(problems=(SdpaProblem.parse(text),), seeds=conditions.seeds))
    sample = track.baseline(conditions.baselines[0])
    calm = min(sample() for _ in range(20))
    assert track.shared() is None

    def noticed() -> bool:
        return sample() > 1.5 * calm or "another program has the GPU in turns" in (track.shared() or "")

    with disturbed("cuda", 60, 0):
        until = time.monotonic() + 60  # the other program has to start first
        while not (found := noticed()) and time.monotonic() < until:
            time.sleep(0.1)
    assert found


# What the gate says ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "last_ticket_left"])
def test_what_a_replay_leaves_behind_is_seen_by_the_next(device: CudaToolchain, tmp_path: Path, name: str) -> None:
    """Blocks of `wgmma` draw their work by a count, which a launch must leave as it was: else the second replay of a
    graph with this one launch finds nothing left to do. A launch of another number begins anew."""
    if device.architecture != "sm_90":
        pytest.skip("wgmma is for sm_90a")
    mutant = next(each for each in warpgroups() if each.name == "last_ticket_left")
    kernels = mutant.family(tmp_path) if name == mutant.name else Family.load(config.kernels_dir() / "sdpa")
    artifact = artifact_of(build(kernels, mutant.variant, mutant.full, device))
    conditions = BRIEF.model_copy(update={"problems": (mutant.full,)})
    report = cuda_line(device, kernels)().check(artifact, conditions, lambda _: None)
    code = report.fault and report.fault.code
    assert code == (None if name == "none" else "G4.capture"), report.fault


# Wrong once in thousands of launches ----------------------------------------------------------------------------------

SMALL = SdpaProblem(batch=1, heads=2, seq_q=8, seq_k=16, head_dim=64, dtype="float16")
BRIEF = Conditions(problems=(SMALL,), cache="warm", seeds=(1, 2, 3, 4), baselines=("flash",))


def soaked(device: CudaToolchain, every: int, seconds: float) -> tuple[GateReport, GateReport]:
    """The reports of one that is wrong in every so manieth launch: after G6, and after G6.many."""
    rare = Family.load(KERNELS / "rare")
    variant = Variant(family="rare", backend="cuda", impl="counts", parameters={"EVERY": every, "WHEN": "counted"})
    artifact = artifact_of(build(rare, variant, SMALL, device))
    line = cuda_line(device, rare)()
    passed = line.check(artifact, BRIEF, lambda _: None)
    soaked = line.check(artifact, BRIEF, lambda _: None, Passed(passed, "soak"))
    assert soaked.passed, soaked.fault
    return soaked, line.check(artifact, BRIEF, lambda _: None, Passed(soaked, "many", seconds))


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
    assert many.note == f"launches: {many.launches} on {SMALL}"
