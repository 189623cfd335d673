"""A fault that rests on time is a variant's where a second look, alone and in a fresh process, finds one again. On a
machine that somebody disturbs it says nothing."""

from contextlib import closing
from pathlib import Path

import pytest

from autotuner.run.jobs import Built
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Verdict
from tests.conformance.executors import build_job, judge_job, notes, outcome, play
from tests.helpers import preload
from tests.helpers.judging import result

pytestmark = pytest.mark.timed

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


@pytest.mark.parametrize("act", ["accused", "late"])
def test_what_a_second_look_does_not_find_again_was_none(tmp_path: Path, act: str) -> None:
    assert judged(tmp_path, act, times=1) == (Verdict.MEASURED, "", "", 3, 2)  # the last time by the soak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "verdict", "code"),
    [("accused", Verdict.IMPOSSIBLE, "measure.memory"), ("late", Verdict.HUNG, "process.deadline")],
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
