"""Replays of recorded spaces (benchmarks/search/replay.py): reading, scoring, the virtual clock, and whole searches."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotuner.run.jobs import BuildJob, Built, JudgeJob
from autotuner.store import Store
from autotuner.values.errors import InputError
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from benchmarks.search import replay as replay_command
from benchmarks.search import replay_pages
from benchmarks.search.replay_run import Clock, Spent, VirtualExecutor, load, replay, save, started_at_random
from benchmarks.search.replay_score import BOOTSTRAPS, Axis, Trace, Yardstick, mean_score
from benchmarks.search.replay_spaces import Landscape, LandscapePoint, Recorded, read, write_json, write_t4
from tests.helpers import simulated
from tests.helpers.fake_line import Truth

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data" / "replay"
MADE_UP = DATA / "made_up.json"


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return read(MADE_UP)


@pytest.fixture(scope="module")
def yardstick(recorded: Recorded) -> Yardstick:
    return Yardstick(recorded.ms, recorded.cost)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


# Reading ------------------------------------------------------------------------------------------------------------


def document() -> dict[str, Any]:
    """The made-up cache."""
    found: dict[str, Any] = json.loads(MADE_UP.read_text())
    return found


def as_t4(cache: dict[str, Any]) -> dict[str, Any]:
    """The cache as Kernel Tuner writes results."""
    words = {"InvalidConfig": "constraints", "CompilationFailedConfig": "compile", "RuntimeFailedConfig": "runtime"}
    results = [
        {
            "timestamp": "2026-01-01",
            "configuration": {name: record[name] for name in cache["tune_params"]},
            "times": {
                "compilation": record["compile_time"],
                "benchmark": record["benchmark_time"],
                "validation": record["verification_time"],
                "framework": 9.0,
                "search_algorithm": 9.0,
                "runtimes": [],
            },
            "invalidity": words.get(record["time"], "correct") if isinstance(record["time"], str) else "correct",
            "correctness": 1,
            "measurements": [
                {"name": "GFLOP/s", "value": 1.0, "unit": ""},
                {"name": "time", "value": record["time"], "unit": "ms"},
            ],
            "objectives": ["time"],
        }
        for record in cache["cache"].values()
    ]
    return {"schema_version": "1.0.0", "results": results}


def same(one: Recorded, other: Recorded) -> bool:
    """Whether two files say the same."""
    return bool(
        one.space.values == other.space.values
        and (one.space.rows == other.space.rows).all()
        and np.allclose(one.ms, other.ms, equal_nan=True)
        and one.faults == other.faults
        and np.allclose(one.seconds, other.seconds)
        and one.configurations == other.configurations
    )


def test_a_cache_becomes_a_space(recorded: Recorded) -> None:
    assert recorded.device == "made up"
    assert recorded.space.values == {
        "IMPL": ("recorded",),
        "BLOCK_SIZE": (16, 32, 64, 128, 256),
        "TILE": (1, 2, 3, 4),
        "METHOD": ("v0", "v1", "v2"),  # "two pass" is no word of a space file
        "ALPHA": (1, 2),  # of 0.25 and 0.5 the order counts
        "USE_CACHE": (0, 1),
        "UNROLL": (1, 2),
    }
    entries = list(document()["cache"].values())
    assert len(recorded.space) == len(entries)
    assert recorded.faults.count(None) == 376
    place = recorded.configurations.index({name: entries[100][name] for name in document()["tune_params"]})
    assert recorded.ms[place] == entries[100]["time"]
    parts = [entries[100][f"{part}_time"] / 1e3 for part in ("compile", "verification", "benchmark")]
    assert recorded.seconds[place].tolist() == pytest.approx(parts)


def test_every_point_is_found_again(recorded: Recorded) -> None:
    space = recorded.space
    assert [space.index_of(space.point(place)) for place in range(len(space))] == list(range(len(space)))
    assert len(space.neighbours(0)) > 0


def test_failures_have_a_kind_and_no_time(recorded: Recorded) -> None:
    kinds = Counter(recorded.faults)
    words = Counter(each["time"] for each in document()["cache"].values() if isinstance(each["time"], str))
    assert kinds[Verdict.LAUNCH_FAILED] == words["RuntimeFailedConfig"] > 0
    assert kinds[Verdict.BUILD_FAILED] == words["CompilationFailedConfig"] > 0
    assert kinds[Verdict.OVER_LIMITS] == words["InvalidConfig"] > 0
    assert [fault is not None for fault in recorded.faults] == np.isnan(recorded.ms).tolist()


@pytest.mark.parametrize("form", ["gzip", "open", "open gzip", "t4", "t4 gzip", "own t4"])
def test_every_form_says_the_same(recorded: Recorded, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"made_up.json{'.gz' if 'gzip' in form else ''}"
    if form == "own t4":
        write_t4(recorded, path)
    else:
        whole = json.dumps(as_t4(document())) if "t4" in form else MADE_UP.read_text()
        text = whole.rstrip().removesuffix("}").rstrip().removesuffix("}") + ",\n" if "open" in form else whole
        path.write_bytes(gzip.compress(text.encode()) if "gzip" in form else text.encode())
    assert same(read(path), recorded)


def test_units_of_t4_are_heeded(recorded: Recorded, tmp_path: Path) -> None:
    results = as_t4(document())
    results["metadata"] = {"timeunit": "seconds"}
    for result in results["results"]:
        for name in ("compilation", "benchmark", "validation"):
            result["times"][name] /= 1e3
        time = result["measurements"][1]
        if isinstance(time["value"], float):
            time |= {"value": time["value"] * 1e3, "unit": "us"}
    write_json(results, tmp_path / "made_up.json")
    assert same(read(tmp_path / "made_up.json"), recorded)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no JSON", "not a JSON document"),
        ("{}", "neither a Kernel Tuner cache"),
        ('{"cache": {}, "tune_params": {}}', "no configuration has a time"),
        ('{"cache": {"1": {"A": 1, "time": "InvalidConfig"}}, "tune_params": {"A": [1]}}', "has a time"),
        ('{"cache": {"1": {"A": 1, "time": 1}, "2": {"A": 1, "time": 2}}, "tune_params": {"A": [1]}}', "there twice"),
        ('{"cache": {"1": {"time": 1}}, "tune_params": {"A": [1]}}', "KeyError"),
    ],
)
def test_what_is_no_recorded_space_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read(path)


def landscape(points: int | None = None) -> Landscape:
    """The small simulated space, judged; or only its first `points`."""
    space = simulated.small_space()
    found = []
    for place in range(len(space))[:points]:
        point = space.point(place)
        truth = simulated.truth(Variant.of("sdpa", "cpu", point))
        us = truth.us if truth.fault is None else None
        seconds = {"build": 1.0, "check": 0.25, "soak": 0.25, "measure": 0.125}
        verdict = truth.fault or Verdict.MEASURED
        found.append(LandscapePoint(point=point, verdict=verdict, us=us, seconds=seconds))
    return Landscape(command="x", when="now", space=space.file, device=simulated.DEVICE, points=tuple(found))


def test_a_landscape_is_the_space_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "small.json.gz"
    whole = landscape()
    whole.model_copy(update={"points": whole.points[::-1]}).write(path)
    found, space = read(path), simulated.small_space()
    assert found.space.digest == space.digest
    assert found.configurations == tuple(space.point(place) for place in range(len(space)))
    assert found.seconds[0].tolist() == [1.0, 0.5, 0.125]
    best = int(np.nanargmin(found.ms))
    assert found.ms[best] == pytest.approx(1e-3 * simulated.microseconds(space.point(best)))
    assert Verdict.INCORRECT in found.faults


def test_a_landscape_in_t4_keeps_order_and_gaps(tmp_path: Path) -> None:
    landscape().write(tmp_path / "small.json")
    found = read(tmp_path / "small.json")
    write_t4(found, tmp_path / "t4.json")
    again = read(tmp_path / "t4.json")
    assert again.space.values["WIDTH"] == (1, 2, 3)  # none, 4, 8
    assert sorted(again.ms[~np.isnan(again.ms)]) == pytest.approx(sorted(found.ms[~np.isnan(found.ms)]))
    assert Counter(again.faults) == Counter(found.faults)


def test_a_landscape_with_a_point_missing_is_refused(tmp_path: Path) -> None:
    landscape(points=-1).write(tmp_path / "small.json")
    with pytest.raises(InputError, match="expected each of the"):
        read(tmp_path / "small.json")


def test_a_landscape_has_no_point_that_was_not_judged() -> None:
    with pytest.raises(ValueError, match="expected a judged point"):
        LandscapePoint(point={"IMPL": "a"}, verdict=Verdict.INFRA_ERROR, us=None, seconds={})
    with pytest.raises(ValueError, match="a latency only if measured"):
        LandscapePoint(point={"IMPL": "a"}, verdict=Verdict.INCORRECT, us=1.0, seconds={})


# Scoring ------------------------------------------------------------------------------------------------------------


def kept_traces(recorded: Recorded, charged: bool) -> list[Trace]:
    """Those of traces.json; sequential searches."""
    found = []
    for each in json.loads((DATA / "traces.json").read_text())["traces"]:
        rows, sampler = np.array(each["rows"]), np.array(each["sampler"]) * charged
        ends = np.cumsum(recorded.cost[rows]) + sampler
        found.append(Trace(rows, ends, np.diff(ends, prepend=0.0), sampler))
    return found


@pytest.mark.parametrize(
    ("expected", "axis", "charged"),
    [
        ("time", "time", True),
        ("time", "clock", True),
        ("time_of_a_free_sampler", "time", False),
        ("evaluations", "evaluations", True),
    ],
)
def test_scores_are_those_of_the_definition(
    recorded: Recorded, yardstick: Yardstick, expected: str, axis: Axis, charged: bool
) -> None:
    kept = json.loads((DATA / "traces.json").read_text())
    score, _ = yardstick.score(kept_traces(recorded, charged), axis)
    assert score.p == pytest.approx(kept["expected"][expected]["p"], abs=1e-6)
    assert score.within == kept["expected"][expected]["within"]
    assert score.low < score.p < score.high
    assert yardstick.evaluations == kept["budget"]["evaluations"]
    assert yardstick.seconds == pytest.approx(kept["budget"]["seconds"])


def sequential(rows: np.ndarray[Any, np.dtype[np.int64]], cost: float, sampler: float = 0.0) -> Trace:
    """Evaluations that cost as much each, one after another."""
    work, thinking = np.full(len(rows), cost + sampler), np.full(len(rows), sampler)
    return Trace(rows, np.cumsum(work), work, np.cumsum(thinking))


@pytest.fixture(scope="module")
def large() -> Yardstick:
    """20,000 points, a tenth of which fail, that cost a second each."""
    draw = np.random.default_rng(0)
    ms = np.where(draw.random(20_000) < 0.1, np.nan, draw.lognormal(size=20_000))
    return Yardstick(ms, np.ones(20_000))


@pytest.mark.parametrize("axis", ["time", "evaluations"])
def test_random_search_scores_0_and_the_optimum_at_once_1(large: Yardstick, axis: Axis) -> None:
    def searches(count: int) -> list[Trace]:
        return [sequential(np.random.default_rng(seed).permutation(20_000)[:400], 1.0) for seed in range(count)]

    score, resampled = large.score(searches(300), axis)
    assert abs(score.p) < 0.12  # a failure costs random search an evaluation, of which the calculated one knows less
    assert len(resampled) == BOOTSTRAPS
    best = np.array([int(np.nanargmin(large.ms))])
    perfect, _ = large.score([sequential(best, 1.0)], axis)
    assert (perfect.p, perfect.within) == (1.0, 1.0)


def test_a_slow_sampler_loses_time_and_no_evaluations(recorded: Recorded, yardstick: Yardstick) -> None:
    rows = [np.random.default_rng(seed).permutation(len(recorded.space)) for seed in range(20)]
    quick, slow = ([sequential(each, 0.6, thinking) for each in rows] for thinking in (0.0, 0.6))
    assert yardstick.score(slow, "time")[0].p < yardstick.score(quick, "time")[0].p
    assert yardstick.score(slow, "evaluations")[0] == yardstick.score(quick, "evaluations")[0]


def test_a_search_without_success_stays_at_the_slowest_point(recorded: Recorded, yardstick: Yardstick) -> None:
    failures = np.flatnonzero(np.isnan(recorded.ms))
    curve = yardstick.curve([sequential(failures, 0.6)], "time")
    assert set(curve.best) == {np.nanmax(recorded.ms)}
    assert len(curve.x) == 100


def test_the_mean_over_spaces_has_a_narrower_interval(recorded: Recorded, yardstick: Yardstick) -> None:
    one = yardstick.score(kept_traces(recorded, True), "time")
    other = (one[0], np.random.default_rng(0).permutation(one[1]))
    mean = mean_score([one, other])
    assert mean.p == one[0].p
    assert mean.high - mean.low < one[0].high - one[0].low


def test_a_space_in_which_nothing_is_slow_cannot_be_scored() -> None:
    with pytest.raises(InputError, match="nothing to search for"):
        Yardstick(np.ones(5), np.ones(5))


def test_traces_are_kept_whole(recorded: Recorded, tmp_path: Path) -> None:
    times = np.arange(3.0)
    traces = [*kept_traces(recorded, True), Trace(np.arange(3), times, 2 * times, 3 * times, workers=16)]
    save(tmp_path / "traces.npz", traces)
    found = load(tmp_path / "traces.npz")
    for one, other in zip(traces, found, strict=True):
        assert one.workers == other.workers
        for name in ("rows", "ends", "work", "sampler"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()


# The virtual clock --------------------------------------------------------------------------------------------------


def executor_of(
    tmp_path: Path, costs: list[float], workers: int, clock: Clock
) -> tuple[VirtualExecutor, list[Variant]]:
    """A space with a point for each of these costs in seconds, the last of which fails, and its variants in order."""
    last = len(costs) - 1
    cache = {
        str(i): {"A": i, "time": "RuntimeFailedConfig" if i == last else 1.0 + i, "benchmark_time": 1e3 * cost}
        for i, cost in enumerate(costs)
    }
    path = tmp_path / "costs.json"
    write_json({"tune_params": {"A": list(range(len(costs)))}, "cache": cache}, path)
    found = read(path)
    executor = VirtualExecutor(found, workers, clock, seconds=10.0, evaluations=3)
    return executor, [Variant.of("recorded", "cuda", found.space.point(i)) for i in range(len(costs))]


def test_what_ends_first_comes_first_and_judging_takes_no_time(tmp_path: Path) -> None:
    clock = Clock()
    executor, variants = executor_of(tmp_path, [5.0, 1.0, 3.0, 2.0], 2, clock)
    conditions = simulated.conditions()

    def build(place: int) -> int:
        return executor.submit(BuildJob(variant=variants[place], conditions=conditions))

    def ended() -> tuple[int, object]:
        done = executor.wait()
        assert done is not None
        return done

    jobs = [build(0), build(1)]
    number, built = ended()
    assert number == jobs[1]
    assert isinstance(built, Built)
    judging = executor.submit(JudgeJob(built=built, conditions=conditions))
    number, outcome = ended()
    assert number == judging
    assert isinstance(outcome, Outcome)
    assert outcome.objective == pytest.approx(np.log(2.0))  # of 2 ms
    assert clock.now == 1.0
    clock.now += 0.5  # the sampler thinks, and the free worker waits for it
    jobs.append(build(2))
    assert [ended()[0], clock.now] == [jobs[2], 4.5]
    jobs.append(build(3))
    assert [ended()[0], ended()[0], clock.now] == [jobs[0], jobs[3], 6.5]
    trace = executor.trace()
    assert trace.rows.tolist() == [1, 2, 0, 3]
    assert trace.ends.tolist() == [1.0, 4.5, 5.0, 6.5]
    assert trace.work.tolist() == [1.0, 3.5, 5.0, 2.0]
    assert trace.spent("clock").tolist() == [2.0, 9.0, 10.0, 13.0]
    with pytest.raises(Spent):  # 11 seconds of evaluations and 4 of them
        executor.wait()


def test_a_failure_is_a_fault_of_the_fake(tmp_path: Path) -> None:
    executor, variants = executor_of(tmp_path, [1.0, 1.0, 1.0], 1, Clock())
    assert executor._truth(variants[2]) == Truth(fault=Verdict.LAUNCH_FAILED)
    assert executor._truth(variants[1]) == Truth(us=2000.0)


def test_time_within_time_counts_once() -> None:
    clock = Clock()
    with clock.sampling(), clock.sampling():
        sum(range(10**5))
    assert clock.now == clock.sampler > 0
    free = Clock(charge=False)
    with free.sampling():
        sum(range(10**5))
    assert free.now == free.sampler == 0


# Whole searches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["random", "evolution"])
def test_one_in_flight_is_the_sequential_definition(
    recorded: Recorded, yardstick: Yardstick, store: Store, sampler: str
) -> None:
    trace = replay(recorded, yardstick, sampler, 0, store)
    costs = recorded.cost[trace.rows]
    assert len(set(trace.rows.tolist())) == len(trace) >= yardstick.evaluations
    assert costs.sum() >= yardstick.seconds
    assert min(costs[:-1].sum() - yardstick.seconds, len(trace) - 1 - yardstick.evaluations) < 0  # no later than that
    assert trace.ends == pytest.approx(np.cumsum(costs) + trace.sampler)
    assert trace.spent("time") == pytest.approx(trace.ends)
    assert (np.diff(trace.sampler, prepend=0.0) > 0).all()
    assert trace.rows[0] == started_at_random(recorded.space, 0).default_index


def test_four_in_flight_overlap_and_come_out_the_same_again(
    recorded: Recorded, yardstick: Yardstick, tmp_path: Path
) -> None:
    def once(name: str) -> Trace:
        with closing(Store.open(str(tmp_path / name))) as store:
            return replay(recorded, yardstick, "evolution", 1, store, workers=4, charge=False)

    trace, again = once("first.db"), once("second.db")
    assert trace.rows.tolist() == again.rows.tolist()
    assert (np.diff(trace.ends) >= 0).all()
    assert trace.work == pytest.approx(recorded.cost[trace.rows])
    in_flight = trace.work.sum() / trace.ends[-1]
    assert 3 < in_flight <= 4


@pytest.mark.slow
def test_the_command_keeps_what_it_can_score_again(tmp_path: Path) -> None:
    def command(*more: str) -> subprocess.CompletedProcess[str]:
        line = [
            sys.executable,
            "-m",
            replay_command.__name__,
            str(MADE_UP),
            "--sampler",
            "random",
            "--seeds",
            "2",
            *more,
        ]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)

    folder, result, figure = tmp_path / "kept", tmp_path / "replay.json", tmp_path / "replay.svg"
    first = command("--jobs", "1", "--keep", str(folder), "--json", str(result), "--figure", str(figure))
    assert first.returncode == 0, first.stderr
    second = command("--kept", str(folder))
    assert second.stdout == first.stdout
    kept = json.loads(result.read_text())
    assert kept["rows"][0]["time"]["p"] == pytest.approx(kept["means"][0]["time"]["p"])
    assert kept["command"].startswith("python -m benchmarks.search.replay made_up.json --sampler random")
    assert "<svg" in figure.read_text()
    assert f"**{kept['means'][0]['time']['p']:.3f}**" in replay_pages.section(kept, figure.name)
    third = command("--seeds", "3", "--kept", str(folder))
    assert third.returncode == 1
    assert "2 searches; expected 3" in third.stderr
