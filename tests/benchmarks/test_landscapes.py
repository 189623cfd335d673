"""Landscapes (benchmarks/search/landscapes.py): how one is measured, what is kept, and the floors under the search."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest

from autotuner.devices.cuda.architecture import architecture
from autotuner.run.jobs import AnyJob, Built, JudgeJob, RaceJob, Result
from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Driver, Event, Judged
from autotuner.tuning.run.outcomes import RETRIES
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict
from benchmarks.search import landscape_pages, landscapes
from benchmarks.search.replay_spaces import Landscape, LandscapePoint, Recorded, read
from tests.helpers import simulated
from tests.helpers.command_line import SPACE as MUTANT_SPACE
from tests.helpers.command_line import lay_out
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

ROOT = Path(__file__).parent.parent.parent
KEPT = sorted(landscapes.LANDSCAPES.glob("*.json.gz"))
SPACES = sorted((ROOT / "benchmarks" / "search" / "spaces").glob("*.toml"))
SMALL = simulated.small_space()
WIDTH = 3


def truth(variant: Variant) -> Truth:
    """As simulated; the plain ones are two programs, and one of these is not deterministic."""
    found = simulated.truth(variant)
    if found.fault is None and variant.impl == "plain":
        return found.model_copy(update={"us": 250.0, "program": "the same"})
    return found


class Losing(InlineExecutor):
    """Notes what it is given, and loses the process of `losses` judging jobs, or of those of one point alone."""

    def __init__(self, backend: FakeLine, losses: int = 0, point: Mapping[str, Value] | None = None) -> None:
        super().__init__(backend, WIDTH)
        self.judging: list[JudgeJob] = []
        self.races = 0
        self._losses, self._point = losses, point

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        self.judging += [job] if isinstance(job, JudgeJob) else []
        self.races += isinstance(job, RaceJob)
        return super().submit(job, lane)

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job = self._waiting[0][1] if self._waiting else None
        if isinstance(job, JudgeJob) and self._losses and self._point in (None, job.variant.point):
            self._losses -= 1
            fault = Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail="a fault of the fake")
            return self._waiting.popleft()[0], Outcome(variant=job.variant, verdict=fault.verdict, fault=fault)
        return super().wait(timeout)


def measure(
    folder: Path,
    executor: InlineExecutor | None = None,
    listen: Callable[[Event], None] = lambda _: None,
    minutes: float = math.inf,
    space: Space = SMALL,
) -> int:
    """The step `measure` on the fake backend; its exit code."""
    executor = executor or InlineExecutor(FakeLine(truth, noise=0.001), WIDTH)
    conditions = simulated.conditions().model_copy(update={"min_blocks": landscapes.MIN_BLOCKS})
    with closing(Store.open(str(folder / "landscapes.db"))) as store:
        equal = landscapes.EqualRaces(executor)
        driver = Driver(store, equal, Plan(space, simulated.DEVICE, conditions, sampler="exhaustive"), listen)
        return landscapes.measure(store, driver, space, simulated.DEVICE, folder / "small.json.gz", "made up", minutes)


def recorded_in(folder: Path) -> list[Outcome]:
    """What the store has of the one study."""
    with closing(Store.open(str(folder / "landscapes.db"))) as store:
        (study,) = standings.studies(store)
        return list(store.judged_numbers(study.name).values())


def blocks_of(outcome: Outcome) -> int:
    assert outcome.measurement is not None
    return len(outcome.measurement.timings[0].variant_us)


def was_soaked(outcome: Outcome) -> bool:
    assert outcome.gate is not None
    return "G6.soak" in {check.code for check in outcome.gate.checks}


def killed_after(folder: Path, count: int) -> None:
    """`measure`, and `kill -9` after `count` points. For a process of its own."""

    def listen(event: Event) -> None:
        if isinstance(event, Judged) and event.judged == count:
            os.kill(os.getpid(), signal.SIGKILL)

    measure(folder, listen=listen)


# The spaces ---------------------------------------------------------------------------------------------------------


def test_the_spaces_differ_in_the_problem_alone() -> None:
    files = [load_space(str(path)) for path in SPACES]
    assert [file.name for file in files] == ["sdpa_causal_long", "sdpa_mission", "sdpa_small"]
    alike = [file.model_dump(exclude={"path", "like", "title", "problems"}) for file in files]
    assert alike[0] == alike[1] == alike[2]
    assert len({file.problems for file in files}) == 3


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_a_space_is_of_a_size_that_can_be_measured_whole(path: Path) -> None:
    space = Space.enumerate(load_space(str(path)), architecture("sm_90").facts())
    assert 600 <= len(space) <= 900
    varying = [name for column, name in enumerate(space.parameters) if len(set(space.rows[:, column].tolist())) > 1]
    assert {"BLOCK_N", "STAGES", "WARPS_M", "WARPS_N", "ROW_TILES", "SPLIT", "LOAD", "EXP"} <= set(varying)


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_the_kernel_takes_the_points_of_a_space(path: Path) -> None:
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    workbench = Workbench(load_space(str(path)), "sm_90")
    assert workbench.space.point(workbench.space.default_index) == dict(workbench.space.file.default)


def test_each_kept_landscape_has_the_space_file_that_is_here() -> None:
    assert [path.name.removesuffix(".json.gz") for path in KEPT] == [path.stem for path in SPACES]
    for kept, path in zip(KEPT, SPACES, strict=True):
        measured = Landscape.read(kept)
        then, now = (Space.enumerate(file, measured.device.facts) for file in (measured.space, load_space(str(path))))
        assert then.digest == now.digest
        np.testing.assert_array_equal(then.derived, now.derived)
        np.testing.assert_array_equal(then.expected, now.expected)


def test_a_landscape_takes_over_derived_quantities_and_nothing_else(tmp_path: Path) -> None:
    assert measure(tmp_path) == 0
    path, file = tmp_path / "small.json.gz", tmp_path / "small.toml"
    before = Landscape.read(path)
    with pytest.raises(InputError, match="not the space that was measured"):
        landscapes.perform(landscapes.arguments(["derive", str(SPACES[0]), str(path)]))
    derived = '[derived]\nBLOCKS = "ceil_div(SEQ_Q, BLOCK)"\n\n[default]'
    text = simulated.TOML.replace("BLOCK = [8, 16, 32, 64, 128]", "BLOCK = [8]").replace("[1, 2, 4, 8]", "[1]")
    file.write_text(text.replace("[default]", derived))
    assert landscapes.perform(landscapes.arguments(["derive", str(file), str(path)])) == 0
    after = Landscape.read(path)
    assert after.space.derived == {"BLOCKS": "ceil_div(SEQ_Q, BLOCK)"}
    assert after == before.model_copy(update={"space": after.space})
    assert read(path).space.derived.shape[1] == 1


# Measuring ----------------------------------------------------------------------------------------------------------


def test_every_point_is_there_as_it_was_judged(tmp_path: Path) -> None:
    assert measure(tmp_path) == 0
    found = Landscape.read(tmp_path / "small.json.gz")
    assert [each.point for each in found.points] == [SMALL.point(place) for place in range(len(SMALL))]
    assert found.space.path == "small.toml"
    assert found.compiler == "fake"
    assert found.baseline_us == pytest.approx(100.0, rel=0.01)
    plain = [each for each in found.points if each.point["IMPL"] == "plain"]
    assert Counter(each.verdict for each in plain) == {Verdict.MEASURED: 1, Verdict.DEDUPLICATED: 2}
    assert len({(each.us, each.half_width) for each in plain}) == 1
    assert [set(each.seconds) for each in plain if each.verdict == Verdict.DEDUPLICATED] == [{"build"}] * 2
    for each in found.points:
        true = truth(Variant.of("sdpa", "cpu", each.point))
        if true.fault is not None:
            assert (each.verdict, each.us, each.half_width) == (true.fault, None, None)
        else:
            assert each.us == pytest.approx(true.us, rel=0.005)
            assert each.half_width is not None
            assert 0 < each.half_width <= 0.005
    assert read(tmp_path / "small.json.gz").faults.count(Verdict.INCORRECT) == 2


def test_none_is_given_up_and_what_is_near_the_best_is_soaked(tmp_path: Path) -> None:
    executor = Losing(FakeLine(truth, noise=0.001))
    assert measure(tmp_path, executor) == 0
    assert {job.incumbent for job in executor.judging} == {None}
    assert executor.races == 0  # fewer points than an A/A race is due after
    outcomes = recorded_in(tmp_path)
    measured = [each for each in outcomes if each.verdict == Verdict.MEASURED]
    assert min(blocks_of(each) for each in measured) >= landscapes.MIN_BLOCKS
    best = min(each.objective for each in measured)
    near = {each.variant.digest for each in measured if each.objective <= best + math.log1p(landscape_pages.NEAR)}
    soaked = {each.variant.digest for each in measured if was_soaked(each)}
    assert near <= soaked < {each.variant.digest for each in measured}
    times_judged = Counter(job.variant.digest for job in executor.judging)
    assert {digest for digest, count in times_judged.items() if count == 2} == soaked


def test_what_fails_the_soak_is_a_reject(tmp_path: Path) -> None:
    """The one that is best by its first judging, and not deterministic by the second."""

    class Racy(InlineExecutor):
        def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
            job = self._waiting[0][1] if self._waiting else None
            done = super().wait(timeout)
            if done is not None and isinstance(job, JudgeJob) and job.soak != "never" and job.variant.point == best:
                fault = Fault(verdict=Verdict.NONDETERMINISTIC, code="G6.soak", detail="a fault of the fake")
                return done[0], Outcome(variant=job.variant, verdict=fault.verdict, fault=fault)
            return done

    times = [truth(Variant.of("sdpa", "cpu", SMALL.point(place))).us for place in range(len(SMALL))]
    best = SMALL.point(int(np.argmin(times)))
    assert measure(tmp_path, Racy(FakeLine(truth), WIDTH)) == 0
    (found,) = [each for each in Landscape.read(tmp_path / "small.json.gz").points if each.point == best]
    assert (found.verdict, found.us) == (Verdict.NONDETERMINISTIC, None)


def test_killed_it_goes_on_and_judges_nothing_again(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from {__name__} import *; killed_after(Path({str(tmp_path)!r}), 8)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "small.json.gz").exists()
    before = {each.variant.digest: each for each in recorded_in(tmp_path)}
    assert len(before) >= 8
    backend = FakeLine(truth, noise=0.001)
    assert measure(tmp_path, InlineExecutor(backend, WIDTH)) == 0
    assert not before.keys() & {variant.digest for variant in backend.built}
    assert len(backend.built) == len(SMALL) - len(before)
    found = Landscape.read(tmp_path / "small.json.gz")
    assert len(found.points) == len(SMALL)
    for each in found.points:
        earlier = before.get(Variant.of("sdpa", "cpu", each.point).digest)
        if earlier is not None:
            assert each == LandscapePoint.of(earlier, found.baseline_us or math.nan)


def test_out_of_minutes_it_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(tmp_path, minutes=0) == landscapes.INCOMPLETE
    assert capsys.readouterr().out == f"{len(SMALL)} of {len(SMALL)} points are missing: run the same command again.\n"
    assert not (tmp_path / "small.json.gz").exists()
    assert measure(tmp_path) == 0


def test_what_was_lost_is_tried_again(tmp_path: Path) -> None:
    assert measure(tmp_path, Losing(FakeLine(truth), losses=3)) == 0
    assert len(Landscape.read(tmp_path / "small.json.gz").points) == len(SMALL)


def test_what_is_lost_in_every_try_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    executor = Losing(FakeLine(truth), losses=1000, point=SMALL.point(5))
    assert measure(tmp_path, executor) == landscapes.INCOMPLETE
    said = capsys.readouterr().out
    assert f"1 of {len(SMALL)} points are missing" in said
    assert f"{RETRIES + 1} times one was lost" in said
    assert not (tmp_path / "small.json.gz").exists()


def test_the_second_judging_has_the_number_and_the_lane_of_the_first() -> None:
    backend = FakeLine(truth)
    lanes: list[int] = []

    class Lanes(InlineExecutor):
        def submit(self, job: AnyJob, lane: int = 0) -> int:
            lanes.append(lane)
            return super().submit(job, lane)

    equal = landscapes.EqualRaces(Lanes(backend, WIDTH, lanes=2))
    assert (equal.width, equal.lanes, equal.wait(0.0)) == (WIDTH, 2, None)
    points = [{**SMALL.file.default, "STAGES": stages} for stages in (1, 2)]
    artifacts = [backend.build(Variant.of("sdpa", "cpu", point), simulated.conditions()) for point in points]
    jobs = [JudgeJob(built=Built(artifact=each, seconds=0.0), conditions=simulated.conditions()) for each in artifacts]
    numbers = [equal.submit(job, lane) for lane, job in enumerate(jobs)]
    done = [equal.wait() for _ in jobs]
    assert [each[0] for each in done if each is not None] == numbers
    assert lanes == [0, 1, 0, 1]  # equally fast, so both are judged twice


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(2, of="whole sweeps")
def test_the_command_on_real_variants(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(MUTANT_SPACE)
    line = [sys.executable, "-m", landscapes.__name__, "measure", "space.toml", "out.json.gz"]
    first = subprocess.run([*line, "--minutes", "0"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout) == (3, "4 of 4 points are missing: run the same command again.\n")
    second = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    found = Landscape.read(tmp_path / "out.json.gz")
    verdicts = {each.point["MUTANT"]: each.verdict for each in found.points}
    assert verdicts.pop("none") == Verdict.MEASURED
    assert set(verdicts.values()) == {Verdict.INCORRECT}
    assert found.command.startswith("python -m benchmarks.search.landscapes measure space.toml")
    third = subprocess.run(
        [*line[:-2], "nowhere.toml", "o.json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert third.returncode == 2
    assert len(third.stderr.splitlines()) == 1


# What is kept -------------------------------------------------------------------------------------------------------


def made_up(folder: Path, space: Space | None = None, seconds: float = 1.0) -> Path:
    """A landscape without noise of the whole simulated space; every evaluation takes as long."""
    space = space or simulated.space()
    points = []
    for place in range(len(space)):
        point = space.point(place)
        true = simulated.truth(Variant.of("sdpa", "cpu", point))
        us = None if true.fault is not None else true.us
        stages = {"build": seconds}
        points.append(LandscapePoint(point=point, verdict=true.fault or Verdict.MEASURED, us=us, seconds=stages))
    path = folder / "made_up.json.gz"
    Landscape(command="x", when="2026", space=space.file, device=simulated.DEVICE, points=tuple(points)).write(path)
    return path


def test_a_measured_landscape_in_t4_says_the_same(tmp_path: Path) -> None:
    measure(tmp_path)
    source, out = tmp_path / "small.json.gz", tmp_path / "t4.json"
    assert landscapes.perform(landscapes.arguments(["t4", str(source), str(out)])) == 0
    one, other = read(source), read(out)
    assert sorted(one.ms[~np.isnan(one.ms)]) == pytest.approx(sorted(other.ms[~np.isnan(other.ms)]))
    assert Counter(one.faults) == Counter(other.faults)
    assert one.seconds.sum() == pytest.approx(other.seconds.sum())


def test_the_summary_counts_what_is_near_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(tmp_path)
    capsys.readouterr()
    assert landscapes.perform(landscapes.arguments(["summary", str(tmp_path / "small.json.gz")])) == 0
    head, _, line = capsys.readouterr().out.splitlines()
    shown = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    found = Landscape.read(tmp_path / "small.json.gz")
    times = [each.us for each in found.points if each.us is not None]
    near = sum(us <= 1.02 * min(times) for us in times)
    assert shown["within 2 %"] == f"{near} ({100 * near / len(SMALL):.1f} %)"
    assert shown["best against SDPA"] == f"{(found.baseline_us or math.nan) / min(times):.2f}x"
    assert "2 incorrect" in shown["verdicts"]
    widths = [each.half_width for each in landscape_pages.within(found, 0.1) if each.half_width is not None]
    assert shown["known to, within 10 %"].startswith(f"±{100 * median(widths):.2f} %")


def test_a_landscape_of_the_first_form_is_read_and_drawn(tmp_path: Path) -> None:
    """Without compiler, baseline, tie and half widths."""
    path = made_up(tmp_path)
    found = Landscape.read(path)
    document = found.model_dump(mode="json", exclude={"compiler", "baseline_us", "tie"})
    for each in document["points"]:
        del each["half_width"]
    old = tmp_path / "old.json"
    old.write_text(json.dumps(document))
    assert Landscape.read(old) == found
    assert len(read(old).space) == len(found.points)
    assert "| made_up | (1,2,64,64) float32 full |" in landscape_pages.part(tmp_path, None)


@pytest.mark.parametrize("text", ["{}", '{"format": "autotuner landscape 1"}', "no JSON"])
def test_what_is_no_landscape_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError, match=r"bad\.json: no") as refused:
        Landscape.read(tmp_path / "bad.json")
    assert "\n" not in str(refused.value)


def test_a_space_without_any_latency_is_no_landscape(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no point has a latency"):
        measure(tmp_path, InlineExecutor(FakeLine(lambda _: Truth(fault=Verdict.INCORRECT)), WIDTH))


# Floors -------------------------------------------------------------------------------------------------------------


def mean_score(recorded: Recorded, sampler: str, seeds: int, folder: Path) -> float:
    """What is held against a floor."""
    with closing(Store.open(str(folder / f"{sampler}.db"))) as store:
        return fmean(landscapes.searched(recorded, sampler, seeds, store).each)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_evolution_reaches_the_floor_of_a_kept_landscape(path: Path) -> None:
    assert landscapes.not_held(landscapes.held(path)) == []


def test_a_landscape_that_does_not_hold_says_why() -> None:
    found = {"name": "x", "floor": 0.5, "evolution": 0.4, "random": 0.6, "measured_anew": True}
    assert len(landscapes.not_held(found)) == 3
    assert landscapes.not_held({**found, "evolution": 0.5, "random": 0.1, "measured_anew": False}) == []


@pytest.mark.slow
def test_a_floor_holds_evolution_and_fails_random_search(tmp_path: Path) -> None:
    text = (
        simulated.TOML.replace("[8, 16, 32, 64, 128]", "[8, 32, 64]")
        .replace("[1, 2, 4, 8]", "[1, 4]")
        .replace("[1, 2, 3]", "[1, 2]")
    )
    space = Space.enumerate(SpaceFile.parse(text, Path("some.toml")), simulated.DEVICE.facts)
    path = made_up(tmp_path, space)
    document = landscapes.floors(tmp_path, seeds=5, fixed=3)
    entry = document["landscapes"]["made_up"]
    assert entry["random"]["mean"] < entry["random"]["may_reach"] < entry["floor"] < entry["evolution"]["mean"]
    evolution, random = (mean_score(read(path), sampler, 3, tmp_path) for sampler in ("evolution", "random"))
    assert evolution == pytest.approx(entry["fixed"])  # the same in any process
    assert random < entry["floor"] <= evolution
    assert f"**{entry['floor']:.3f}**" in landscape_pages.part(tmp_path, document)


def test_a_floor_that_random_search_may_reach_is_refused() -> None:
    alike = landscapes.Scores([0.1, 0.5, 0.9])
    with pytest.raises(InputError, match="not told apart"):
        landscapes.floor("x", alike, alike, 8)
    good = landscapes.Scores([0.91, 0.95, 0.99])
    assert 0.91 <= landscapes.floor("x", good, landscapes.Scores([-0.1, 0.0, 0.1]), 8) < 0.95


def test_floors_without_landscapes_or_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no landscape"):
        landscapes.floors(tmp_path, seeds=8)
    made_up(tmp_path)
    with pytest.raises(InputError, match="expected no fewer"):
        landscapes.floors(tmp_path, seeds=4, fixed=8)
