"""The job in hand: a device goes on to its next job while the driver is busy with the result of the last one."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from autotuner.run.jobs import Built, JudgeJob
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.values.outcome import Heat, Outcome
from autotuner.values.variant import Value
from autotuner.values.verdict import Fault, Verdict
from tests.conformance.executors import PlayBackend, build_job, fresh_job, judge_job, notes, play, race_job
from tests.helpers import preload
from tests.helpers.ends import comes_of, next_of, outcome
from tests.helpers.judging import result
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.timed


def ahead(jobs: int = 20, start: float = 30, check: float = 30) -> LocalExecutor:
    """One whose device has its next job in hand."""
    deadlines = Deadlines(start=start, check=check)
    return LocalExecutor(play, preload.CPU, deadlines, overlap=True, jobs_per_process=jobs)


@pytest.fixture
def eager() -> Iterator[LocalExecutor]:
    with closing(ahead()) as executor:
        yield executor


def work(folder: Path, name: str, **more: Value) -> JudgeJob:
    """A job that notes its beginning and its end in that folder."""
    return once(judge_job("works", FOLDER=str(folder), NAME=name, **more))


def once(job: JudgeJob) -> JudgeJob:
    """The same job; there is one check of it, as it is not soaked."""
    return job.model_copy(update={"soak": "never"})


def begun(folder: Path) -> list[str]:
    return [note.name for note in notes(folder, "begin")]


def warm_up() -> None:
    """Returns when there is a zygote, so that a process starts at once."""
    with closing(ahead()) as executor:
        comes_of(executor, judge_job())


def test_a_device_goes_on_while_the_driver_is_busy(eager: LocalExecutor, tmp_path: Path) -> None:
    numbers = [eager.submit(work(tmp_path, name)) for name in ("first", "second")]
    wait_for(lambda: len(notes(tmp_path)) == 4)
    noted = notes(tmp_path)
    assert [note[:2] for note in noted] == [(name, what) for name in ("first", "second") for what in ("begin", "end")]
    assert len({note.pid for note in noted}) == 1
    for number in numbers:
        done = eager.wait(60)
        assert outcome(done).verdict == Verdict.MEASURED
        assert done is not None
        assert done[0] == number


def noted(folder: Path) -> PlayBackend:
    """As `play`; the folder has which process made a line."""
    (folder / str(os.getpid())).touch()
    return play()


def test_while_one_races_in_a_fresh_process_the_next_one_opens_the_device(tmp_path: Path) -> None:
    with closing(LocalExecutor(partial(noted, tmp_path), preload.CPU, overlap=True, jobs_per_process=20)) as executor:
        for processes in (2, 3):
            assert isinstance(result(executor, race_job("right", fresh=True), 60), Heat)
            wait_for(lambda processes=processes: len(list(tmp_path.iterdir())) == processes)  # type: ignore[misc]


def test_it_has_one_job_in_hand_and_no_more(eager: LocalExecutor, tmp_path: Path) -> None:
    for name in "ABCD":
        eager.submit(work(tmp_path, name))
    for beyond in ("AB", "ABC", "ABCD"):
        wait_for(lambda beyond=beyond: begun(tmp_path) == list(beyond))  # type: ignore[misc]
        time.sleep(0.2)
        assert begun(tmp_path) == list(beyond)
        assert outcome(eager.wait(60)).verdict == Verdict.MEASURED
    assert outcome(eager.wait(60)).verdict == Verdict.MEASURED
    assert eager.wait() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd", "verdict", "begins"),
    [
        ({"THEN": "aborts"}, Verdict.CRASHED, 1),
        ({"MS": 30000}, Verdict.HUNG, 1),
        ({"THEN": "tells", "AS": "corrupting", "WHAT": "pid"}, Verdict.CORRUPTING, 1),
        ({"THEN": "corrupts"}, Verdict.CORRUPTING, 2),
        ({"THEN": "babbles_now"}, Verdict.CRASHED, 2),
    ],
    ids=["aborts", "hangs", "is corrupting", "is corrupting and goes on", "writes garbage and goes on"],
)
def test_a_job_in_hand_is_not_done_by_a_spoilt_process(
    tmp_path: Path, odd: dict[str, Value], verdict: Verdict, begins: int
) -> None:
    """Where the process had begun it already, that work is thrown away."""
    with closing(ahead(check=2)) as executor:
        jobs = [work(tmp_path, "A", **odd), work(tmp_path, "B"), work(tmp_path, "C")]
        numbers = [executor.submit(job) for job in jobs]
        wait_for(lambda: begun(tmp_path) == ["A", "B"][:begins])
        time.sleep(0.3)
        done = [executor.wait(60) for _ in jobs]
        assert executor.wait() is None
    assert [each[0] for each in done if each] == numbers
    assert [outcome(each).variant for each in done] == [job.variant for job in jobs]
    assert [outcome(each).verdict for each in done] == [verdict, Verdict.MEASURED, Verdict.MEASURED]
    looks = ["A"] * (2 if verdict == Verdict.HUNG else 1)  # what rests on time is looked at again, alone
    assert begun(tmp_path) == [*looks, *["B"] * begins, "C"]
    first, *thrown_away, again, last = [note.pid for note in notes(tmp_path, "begin")][len(looks) - 1 :]
    assert set(thrown_away) <= {first}
    assert again == last != first
    said = outcome(done[0]).stderr_tail
    assert "B" not in said
    assert said.startswith("A begins") or verdict == Verdict.CORRUPTING


@pytest.mark.parametrize("what", ["raises", "input"])
def test_a_job_behind_one_that_raises_is_done_by_another_process(
    eager: LocalExecutor, tmp_path: Path, what: str
) -> None:
    """What raises is tried once more first, in a process of its own."""
    eager.submit(work(tmp_path, "A", THEN=what))
    eager.submit(work(tmp_path, "B"))
    assert [outcome(eager.wait(60)).verdict for _ in "AB"] == [Verdict.CRASHED, Verdict.MEASURED]
    assert eager.wait() is None
    assert begun(tmp_path) == ["A", "A", "B"]
    assert len({note.pid for note in notes(tmp_path)}) == 3


def test_a_job_in_hand_that_crashes_is_done_again_before_it_is_blamed(eager: LocalExecutor, tmp_path: Path) -> None:
    eager.submit(work(tmp_path, "A"))
    eager.submit(work(tmp_path, "B", THEN="dies"))
    eager.submit(work(tmp_path, "C"))
    wait_for(lambda: begun(tmp_path) == ["A", "B"])
    time.sleep(0.3)  # it is dead before anybody reads how the first one ended
    verdicts = [outcome(eager.wait(60)).verdict for _ in "ABC"]
    assert verdicts == [Verdict.MEASURED, Verdict.CRASHED, Verdict.MEASURED]
    assert eager.wait() is None
    assert begun(tmp_path) == list("ABBC")
    assert len({note.pid for note in notes(tmp_path)}) == 3


def test_a_race_in_hand_that_costs_its_process_ends_with_a_fault(eager: LocalExecutor) -> None:
    eager.submit(judge_job())
    number = eager.submit(race_job("right", "dies_in_race"))
    assert outcome(eager.wait(60)).verdict == Verdict.MEASURED
    done = next_of(eager)
    assert done[0] == number
    assert isinstance(done[1], Fault)
    assert done[1].code == "process.signal"


@pytest.mark.slow
def test_the_clock_of_a_job_in_hand_starts_when_the_one_before_it_ends(tmp_path: Path) -> None:
    """Else it would be late in its start, and done again."""
    warm_up()
    with closing(ahead(start=2.5)) as executor:
        executor.submit(work(tmp_path, "A", MS=3000))
        executor.submit(work(tmp_path, "B"))
        assert all(outcome(executor.wait(60)).verdict == Verdict.MEASURED for _ in "AB")
    assert len({note.pid for note in notes(tmp_path)}) == 1
    assert begun(tmp_path) == ["A", "B"]


def test_a_job_in_hand_that_hangs_is_late_by_itself_and_has_its_own_checks_and_output(tmp_path: Path) -> None:
    with closing(ahead(check=1.5)) as executor:
        executor.submit(work(tmp_path, "A"))
        executor.submit(work(tmp_path, "B", MS=30000))
        assert outcome(executor.wait(60)).verdict == Verdict.MEASURED
        late = outcome(executor.wait(60))
    assert late.verdict == Verdict.HUNG
    assert late.stderr_tail == "B begins"
    assert [check.code for check in late.gate.checks] == ["G1.B"]
    assert len({note.pid for note in notes(tmp_path)}) == 2  # the second look at what hangs is in a fresh process


def test_a_fresh_job_is_never_in_hand_nor_is_one_behind_it(eager: LocalExecutor, tmp_path: Path) -> None:
    fresh = once(fresh_job("works", FOLDER=str(tmp_path), NAME="B", MS=300))
    numbers = [eager.submit(job) for job in (work(tmp_path, "A"), fresh, work(tmp_path, "C"))]
    wait_for(lambda: bool(notes(tmp_path, "end")))
    time.sleep(0.3)
    assert begun(tmp_path) == ["A"]
    done = [eager.wait(60) for _ in numbers]
    assert [each[0] for each in done if each] == numbers
    assert all(outcome(each).verdict == Verdict.MEASURED for each in done)
    assert begun(tmp_path) == list("ABC")
    assert len({note.pid for note in notes(tmp_path)}) == 3


def test_a_job_that_fills_the_pipe_holds_up_nobody(eager: LocalExecutor, tmp_path: Path) -> None:
    eager.submit(work(tmp_path, "A", MS=4000))
    large = work(tmp_path, "B", MORE="more" * 50_000)
    started = time.monotonic()
    eager.submit(large)
    assert time.monotonic() - started < 3  # the first one works for 4
    assert all(outcome(eager.wait(60)).verdict == Verdict.MEASURED for _ in "AB")
    assert begun(tmp_path) == ["A", "B"]


@pytest.mark.slow
def test_a_job_in_hand_that_a_variant_took_is_not_lost(tmp_path: Path) -> None:
    warm_up()
    with closing(ahead(start=2.5)) as executor:
        executor.submit(work(tmp_path, "A", THEN="robs"))
        number = executor.submit(work(tmp_path, "B"))
        assert outcome(executor.wait(60)).verdict == Verdict.MEASURED
        done = executor.wait(60)
        assert outcome(done).verdict == Verdict.MEASURED
        assert done is not None
        assert done[0] == number
    assert begun(tmp_path) == ["A", "B"]
    assert len({note.pid for note in notes(tmp_path)}) == 2


# A second look --------------------------------------------------------------------------------------------------------


BUSY = "in use by burn (pid 7) 100% of a CPU"


def judged(folder: Path, act: str, times: int, who: str = "") -> tuple[Verdict, str, str, int, int]:
    """Verdict, code and detail of its fault, how often it was checked and in how many processes; others are judged
    before and after it."""
    deadlines = Deadlines(check=2)
    with closing(
        LocalExecutor(play, preload.CPU, deadlines, overlap=True, jobs_per_process=20, who_disturbs=lambda: who)
    ) as executor:
        executor.submit(judge_job())
        executor.submit(judge_job(act, FOLDER=str(folder), TIMES=times))
        executor.submit(judge_job())
        found = [outcome(executor.wait(60)) for _ in range(3)]
    assert sum(each.verdict == Verdict.MEASURED for each in found) >= 2
    (mine,) = (each for each in found if each.variant.impl == act)
    pids = [note.pid for note in notes(folder, "begin")]
    fault = mine.fault
    return mine.verdict, fault.code if fault else "", fault.detail if fault else "", len(pids), len(set(pids))


@pytest.mark.parametrize("act", ["accused", "late", "uncaptured"])
def test_what_a_second_look_does_not_find_again_was_none(tmp_path: Path, act: str) -> None:
    assert judged(tmp_path, act, times=1) == (Verdict.MEASURED, "", "", 3, 2)  # the last time by the soak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "verdict", "code"),
    [
        ("accused", Verdict.IMPOSSIBLE, "measure.memory"),
        ("late", Verdict.HUNG, "process.deadline"),
        ("uncaptured", Verdict.LAUNCH_FAILED, "measure.capture"),
    ],
)
def test_what_it_finds_again_is_the_variants(tmp_path: Path, act: str, verdict: Verdict, code: str) -> None:
    found = judged(tmp_path, act, times=5)
    assert found[:2] == (verdict, code)
    assert found[3:] == (2, 2)


@pytest.mark.parametrize("act", ["accused", "late"])
def test_on_a_machine_that_somebody_disturbs_it_says_nothing(tmp_path: Path, act: str) -> None:
    verdict, code, detail, tries, _ = judged(tmp_path, act, times=5, who=BUSY)
    assert (verdict, code, tries) == (Verdict.DISTURBED, "measure.disturbed", 1)
    assert detail.endswith(f"but somebody disturbs: {BUSY}")
    assert ("measure.memory: " in detail) == (act == "accused")


@pytest.mark.parametrize(
    ("times", "who", "tries", "verdict"),
    [(1, "", 2, None), (5, "", 2, Verdict.BUILD_TIMEOUT), (5, BUSY, 1, Verdict.DISTURBED)],
)
def test_a_compiler_that_is_late_gets_one_too(
    tmp_path: Path, times: int, who: str, tries: int, verdict: Verdict | None
) -> None:
    with closing(LocalExecutor(play, preload.CPU, overlap=True, who_disturbs=lambda: who)) as executor:
        found = result(executor, build_job("slow_to_build", FOLDER=str(tmp_path), TIMES=times), 60)
    assert isinstance(found, Built) if verdict is None else isinstance(found, Outcome) and found.verdict == verdict
    assert len({note.pid for note in notes(tmp_path, "begin")}) == tries
