"""Replies that a variant writes for itself, under the key of its process: no code of theirs runs in the driver, and
none is believed. The kernel finds the key as any code in its process can."""

import json
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.run.jobs import BuildJob, Built, JudgeJob, RaceJob, perform
from autotuner.run.local import LocalExecutor
from autotuner.run.messages import LARGEST_MESSAGE, Message, Raised, misfit
from autotuner.values.errors import DiskFullError, InputError
from autotuner.values.outcome import Heat, Outcome
from autotuner.values.verdict import Verdict
from tests.helpers.conduct_driver import CONDITIONS, conduct, judges
from tests.helpers.ends import next_of
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.judging import KERNELS, result

pytestmark = pytest.mark.timed


class RunsCode:
    """Unpickled, it runs a shell."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return __import__("os").system, (f"touch '{self._folder}/came'",)


def passed(job: JudgeJob) -> Outcome:
    """What an honest process would say of a right and fast variant."""
    found = perform(job, FakeLine(lambda variant: Truth(us=1.0)), lambda step: None)
    assert isinstance(found, Outcome)
    assert found.verdict == Verdict.MEASURED
    return found


def of_another(job: JudgeJob) -> Outcome:
    """The same of a variant that is not under way."""
    artifact = job.built.artifact.model_copy(update={"variant": conduct("waits")})
    return passed(job.model_copy(update={"built": job.built.model_copy(update={"artifact": artifact})}))


def says(number: int, result: Outcome) -> bytes:
    return Message(number=number, result=result).model_dump_json().encode()


FORGED: dict[str, tuple[Callable[[int, JudgeJob, Path], bytes], str]] = {
    "a pickle": (
        lambda number, job, folder: pickle.dumps(RunsCode(folder)),
        "a forged message (all of it: Invalid JSON",
    ),
    "a pickle in a field": (
        lambda number, job, folder: json.dumps(
            {"number": number, "result": pickle.dumps(RunsCode(folder), 0).decode()}
        ).encode(),
        "a forged message (result",
    ),
    "a pass": (lambda number, job, folder: says(number, passed(job)), "which was never begun"),
    "a pass of another variant": (
        lambda number, job, folder: says(number, of_another(job)),
        "an outcome of another variant",
    ),
    "an answer to another job": (lambda number, job, folder: says(number + 1, passed(job)), "an answer to job"),
    "an answer without end": (
        lambda number, job, folder: b" " * LARGEST_MESSAGE,
        f"a message of {LARGEST_MESSAGE + 16}",
    ),
    "a latency that has no logarithm": (
        lambda number, job, folder: says(number, passed(job)).replace(b'"baseline_us":[', b'"baseline_us":[-1,'),
        "a forged message (result",
    ),
    "a speed that is no number": (
        lambda number, job, folder: re.sub(rb'"objective":[-\d.]+', b'"objective":NaN', says(number, passed(job))),
        "a forged message (result",
    ),
    "a number of many digits": (
        lambda number, job, folder: b'{"number": ' + b"9" * 10**6 + b"}",
        "a forged message (all of it: Invalid JSON",
    ),
    "invalid UTF-8": (
        lambda number, job, folder: b'{"number": %d, "step": "\xff"}' % number,
        "a forged message (all of it: Invalid JSON",
    ),
    "NUL": (lambda number, job, folder: b'{"number": %d, "failure": "\\u0000"}' % number, "with NUL"),
    "a long step": (
        lambda number, job, folder: b'{"number": %d, "step": "%s"}' % (number, b"G" * 10**6),
        "a forged message (step: String should have at most",
    ),
    "deep JSON": (lambda number, job, folder: b"[" * 10**6, "a forged message (all of it: Invalid JSON"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def executor(folder: Path, toolchain: CpuToolchain) -> Iterator[LocalExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        with closing(judges(toolchain, KERNELS / "conduct", check=20)) as made:
            yield made


@pytest.fixture(scope="module")
def built(executor: LocalExecutor) -> Built:
    made = result(executor, BuildJob(variant=conduct("sends_a_reply"), conditions=CONDITIONS))
    assert isinstance(made, Built)
    return made


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_reply_runs_no_code_and_rejects_the_variant_in_one_line(
    executor: LocalExecutor, built: Built, folder: Path, name: str
) -> None:
    job, (forged, words) = JudgeJob(built=built, conditions=CONDITIONS), FORGED[name]
    number = executor.submit(job)
    (folder / "whole").write_bytes(forged(number, job, folder))
    (folder / "whole").rename(folder / f"{number}.reply")  # at once: the variant may wait for it
    done = next_of(executor)
    assert isinstance(done[1], Outcome)
    assert done[0] == number
    fault = done[1].fault
    ending = (done[1].verdict, fault.code, done[1].measurement)
    assert ending == (Verdict.CRASHED, "process.garbage", None), done[1].stderr_tail
    assert words in fault.detail
    assert fault.detail.endswith("in G1.smoke")
    assert "\n" not in fault.detail
    assert not (folder / "came").exists()


def test_samples_of_some_blocks_without_the_other_side_are_no_race(built: Built) -> None:
    """The driver would make ratios of them."""
    job = JudgeJob(built=built, conditions=CONDITIONS)
    found = passed(job)
    assert found.gate
    assert found.measurement
    heard = {"measure", *(check.code for check in found.gate.checks)}
    assert misfit(job, found, heard) is None
    (timing,) = found.measurement.timings
    for update in ({"baseline_us": timing.baseline_us[1:]}, {"baseline_us": (), "variant_us": ()}):
        timings = {"timings": (timing.model_copy(update=update),)}
        forged = found.model_copy(update={"measurement": found.measurement.model_copy(update=timings)})
        assert "lack a side" in (misfit(job, forged, heard) or "")
    race = RaceJob(artifacts=(built.artifact,), conditions=CONDITIONS, blocks=4)
    heat = perform(race, FakeLine(lambda variant: Truth(us=1.0)), lambda step: None)
    assert isinstance(heat, Heat)
    assert misfit(race, heat, ()) is None
    for us in ((), ((),), ((heat.us[0][0][1:],),)):
        assert "lack a side" in (misfit(race, heat.model_copy(update={"us": us}), ()) or "")


def test_an_error_comes_back_as_what_it_was() -> None:
    class Anothers(InputError):
        """Of another package."""

    for error, kind in ((DiskFullError("no room"), DiskFullError), (Anothers("mend it"), InputError)):
        back = Message.model_validate_json(Message(number=1, raised=Raised.of(error)).model_dump_json()).raised
        assert (type(back.error), str(back.error)) == (kind, str(error))
    with pytest.raises(ValueError, match="there is no such error"):
        Raised(kind="SystemExit", text="0")


REFUSES = """
import os, signal, sys
from autotuner.run.inside import watch
from autotuner.ops import surroundings
told = []
look = watch(told.append, {}, False)
look()
assert not told
for act in ("", *sys.argv[1:]):
    child = os.fork()
    if child == 0:
        exec(act)
        look()
        os._exit(told != ([surroundings.THREAD] if act else []))
    assert os.waitpid(child, 0)[1] == 0, act
"""
LESSENED = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "os.nice(1)",
    "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))",
)


def test_a_signal_refused_or_a_priority_lowered_since_a_variant_was_loaded_is_told() -> None:
    subprocess.run([sys.executable, "-c", REFUSES, *LESSENED], check=True, timeout=60)
