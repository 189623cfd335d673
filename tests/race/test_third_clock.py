"""The driver's clock: it believes no sample that took longer than its process says, whatever clock that process has."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from autotuner.devices import DEVICES
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.race import third_clock
from autotuner.race.third_clock import MARK, SHARE, Stamp, ThirdClock
from autotuner.run.cage import CageParts
from autotuner.run.jobs import RaceJob
from autotuner.run.local import LocalExecutor
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.conduct_driver import CONDITIONS
from tests.helpers.judging import artifact_of, cpu_judge, judged
from tests.mutants.expectations import MUTANTS

SAMPLE_S = 0.004


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, ThirdClock]]:
    """A process's end of the channel, and the driver's clock."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monkeypatch.setattr(third_clock, "_channel", [])
    third_clock.report_to(theirs)
    with closing(ThirdClock(mine)) as clock, theirs:
        yield theirs, clock


def sample(stamp: Stamp, share: float = 1.0) -> None:
    """One that says it took so much of its time."""
    stamp.begin()
    started = time.perf_counter_ns()
    time.sleep(SAMPLE_S)
    stamp.end(int(share * (time.perf_counter_ns() - started)))


def test_an_honest_clock_agrees_although_the_driver_looks_much_later(ends: tuple[socket.socket, ThirdClock]) -> None:
    stamp = Stamp()
    for _ in range(10):
        sample(stamp)
    time.sleep(0.1)
    assert ends[1].fault() is None


@pytest.mark.parametrize("share", [0.5, 0.9, 2.0])
def test_a_clock_that_is_slow_or_fast_in_one_arms_samples_is_seen(
    ends: tuple[socket.socket, ThirdClock], share: float
) -> None:
    baseline, variant = Stamp(), Stamp()
    for _ in range(8):
        sample(baseline)
        sample(variant, share)
    fault = ends[1].fault()
    assert (fault.verdict, fault.code) == (Verdict.IMPOSSIBLE, "measure.clocks")
    assert fault.detail.startswith("8 samples took")


def test_a_latency_of_which_the_driver_has_heard_nothing_is_none(ends: tuple[socket.socket, ThirdClock]) -> None:
    assert ends[1].fault() is None
    fault = ends[1].fault(timed=True)
    assert fault.code == "measure.clocks"
    stamp = Stamp()
    for _ in range(2):
        sample(stamp)
    assert ends[1].fault(timed=True) is None


@pytest.mark.timed
def test_few_samples_that_something_held_up_accuse_nobody(ends: tuple[socket.socket, ThirdClock]) -> None:
    stamp = Stamp()
    for number in range(20):  # half of what is allowed: a busy machine may hold up the rest
        sample(stamp, 0.5 if number < 20 * SHARE / 2 else 1.0)
    assert ends[1].fault() is None
    ends[1].forget()
    sample(stamp, 0.5)
    assert ends[1].fault() is None


def test_what_is_no_mark_is_passed_over_and_a_full_channel_holds_nobody_up(
    ends: tuple[socket.socket, ThirdClock],
) -> None:
    theirs, clock = ends
    for garbage in (b"", b"short", b"x" * 100, MARK.pack(7, 10**9)):
        theirs.send(garbage)
    stamp, started = Stamp(), time.monotonic()
    for _ in range(10_000):
        stamp.begin()
        stamp.end(0)
    assert time.monotonic() - started < 10
    assert clock.fault() is None
    for _ in range(3):
        sample(stamp)
    assert clock.fault() is None


# Kernels that change what time it seems to be -----------------------------------------------------------------------

PATCHES = ("patches_both_clocks",)
INTERPOSES = "interposes_the_clock"


def mutant(name: str) -> Variant:
    return Variant(family="clock", backend="cpu", impl="mutant", parameters={"MUTANT": name})


@pytest.fixture(scope="module")
def family() -> Family:
    return Family.load(MUTANTS / "clock")


@pytest.fixture(scope="module")
def executor(toolchain: CpuToolchain, family: Family) -> Iterator[LocalExecutor]:
    with cpu_judge(toolchain, family) as made:
        yield made


@pytest.mark.timed
@pytest.mark.parametrize("name", PATCHES)
def test_a_kernel_that_patches_the_clocks_of_its_process_has_no_latency(executor: LocalExecutor, name: str) -> None:
    outcome = judged(executor, mutant(name), CONDITIONS, soak="never")
    assert (outcome.verdict, outcome.fault.code) == (Verdict.IMPOSSIBLE, "measure.clocks"), outcome.fault
    assert outcome.fault.detail.endswith("by the driver's")
    assert outcome.measurement is None
    assert not outcome.gate.passed


PYTHON = ("halves_its_time_in_python", "runs_python_in_a_thread", "halves_its_time_in_c")
CODE = ("silences_the_third_clock", "rewrites_the_marks", "alarm_while_others_run")
IN_CODE = [pytest.mark.slow, pytest.mark.sampled(1, "code")]


@pytest.mark.timed
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(each, marks=pytest.mark.sampled(1, "Python")) for each in PYTHON),
        *(pytest.param(each, marks=IN_CODE) for each in CODE),
    ],
)
def test_nor_has_one_that_has_others_run_its_code(toolchain: CpuToolchain, name: str) -> None:
    attacks = Family.load(MUTANTS / "attacks")
    variant = Variant(family="attacks", backend="cpu", impl="stated", parameters={"ATTACK": name})
    with cpu_judge(toolchain, attacks) as executor:
        outcome = judged(executor, variant, CONDITIONS, soak="never")
    assert (outcome.verdict, outcome.fault.code) == (Verdict.CORRUPTING, "G7.guard"), outcome.fault
    assert outcome.measurement is None
    assert ("functions that it calls" in outcome.fault.detail) == (name in CODE[:2])


@pytest.mark.timed
def test_nor_has_it_a_time_in_a_heat(executor: LocalExecutor, toolchain: CpuToolchain, family: Family) -> None:
    for name, denied in (("none", False), (PATCHES[0], True)):
        built = artifact_of(build(family, mutant(name), CONDITIONS.compiled_for, toolchain))
        executor.submit(RaceJob(artifacts=(built,), conditions=CONDITIONS, blocks=4))
        done = executor.wait(120)
        assert done is not None
        assert isinstance(done[1], Fault) == denied, done[1]
        assert not isinstance(done[1], Fault) or done[1].code == "measure.clocks"


@pytest.mark.timed
@pytest.mark.parametrize(
    ("name", "code"), [("patches_the_vdso", "G1.status"), pytest.param(INTERPOSES, "G7.guard", marks=pytest.mark.slow)]
)
def test_in_the_cage_the_systems_code_cannot_be_patched(
    toolchain: CpuToolchain, family: Family, name: str, code: str
) -> None:
    """What needs no code is not kept out, and has no latency there either. The status says that the patch failed."""
    parts = CageParts.of(DEVICES["cpu"].cage, (family.folder, *family.include_dirs))
    with cpu_judge(toolchain, family, cage=parts) as executor:
        fault = judged(executor, mutant(name), CONDITIONS, soak="never").fault
    assert fault.code == code, fault
    assert code != "G1.status" or "77" in fault.detail
