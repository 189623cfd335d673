"""Where a new study starts: related studies, first points that families ship, and what a search makes of them."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.devices import Chosen
from autotuner.forge.family import Family, find_limits
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.first_points import FILE, SAME_CLASS, read_first_points
from autotuner.spaces.problem_files import Asked, parsed_problem
from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store, StudyRecord, queries
from autotuner.tuning import transfer, workbench
from autotuner.tuning.finals import standings
from autotuner.tuning.run.plan import Plan, Start
from autotuner.tuning.transfer import HINTED, distance, elites, first_points, known_points, mapped, start
from autotuner.values import config
from autotuner.values.errors import InputError, KernelError, StoreError
from autotuner.values.known_points import HINTS
from autotuner.values.outcome import Device
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant
from benchmarks.search.first_points import begun, documents
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.searching import ask, study_of

SPACE = simulated.space()
PROBLEM = SPACE.file.problems[0]
Microseconds = Callable[[dict[str, Value]], float]


def changed(**changes: object) -> Problem:
    """The simulated problem with something else."""
    alike = {"heads_kv": changes["heads"]} if "heads" in changes else {}
    return SdpaProblem.model_validate({**PROBLEM.model_dump(), **alike, **changes})


def space_of(problem: Problem = PROBLEM, text: str = simulated.TOML, name: str = "simulated") -> Space:
    file = SpaceFile.parse(text, Path(f"{name}.toml")).model_copy(update={"problems": (problem,)})
    return Space.enumerate(file, simulated.DEVICE.facts)


def record_of(space: Space, device: Device = simulated.DEVICE, built_from: str = "") -> StudyRecord:
    conditions = simulated.conditions().model_copy(update={"problems": space.file.problems})
    return Plan(space, device, conditions, built_from=built_from).record


def backend(microseconds: Microseconds) -> FakeLine:
    """As simulated, with other latencies and the same faults."""

    def truth(variant: Variant) -> Truth:
        known = simulated.truth(variant)
        return known if known.fault is not None else Truth(us=microseconds(variant.point))

    return FakeLine(truth)


def search(
    store: Store,
    space: Space,
    trials: int,
    found: Start | None = None,
    microseconds: Microseconds = simulated.microseconds,
    seed: int = 0,
    built_from: str = "",
) -> list[dict[str, Value]]:
    """Runs a study, or goes on with it; the points that it has judged, in their order."""
    conditions = simulated.conditions().model_copy(update={"problems": space.file.problems})
    plan: dict[str, Any] = {"seed": seed, "built_from": built_from, "start": found if found is not None else Start()}
    by = InlineExecutor(backend(microseconds))
    study = swept(store, by, trials, space=space, conditions=conditions, **plan)
    return [trial.point for trial in queries.judged(store, study)]


# Which are related --------------------------------------------------------------------------------------------------


def far(problem: Problem, device: Device = simulated.DEVICE) -> float:
    """How far a study of that problem, on that device, is from the simulated one."""
    return distance(record_of(space_of(problem), device), record_of(SPACE))


def test_the_nearest_come_first_and_strangers_never(store: Store) -> None:
    made = {
        "far": record_of(space_of(changed(seq_q=1024, seq_k=1024))),
        "near": record_of(space_of(changed(heads=4))),
        "old sources": record_of(SPACE, built_from="before"),
        "older sources": record_of(SPACE, built_from="long before"),
    }
    new = record_of(SPACE)
    text = json.loads(new.space_document)
    strangers = [
        new.model_copy(update={"name": "family", "space_document": json.dumps({**text, "family": "other"})}),
        new.model_copy(update={"name": "backend", "device": new.device.model_copy(update={"backend": "cuda"})}),
    ]
    for each in (made["far"], made["older sources"], *strangers, made["near"], made["old sources"], new):
        store.ensure_study(each)
    found = [each.name for each in transfer.related(store, new)]
    assert found == [made[name].name for name in ("old sources", "older sources", "near", "far")]


# What they give -----------------------------------------------------------------------------------------------------

OTHER = space_of(changed(heads=4))


def test_a_revoked_latency_is_not_known(store: Store) -> None:
    search(store, OTHER, 20)
    name = record_of(OTHER).name
    before = known_points(store, name, SPACE)
    best = standings.leaderboard(store, name, 1)[0]
    store.revoke(name, best.number, "a test")
    after = known_points(store, name, SPACE)
    place = before.points.index(SPACE.index_of(best.variant.point))
    assert before.objectives[place] is not None
    assert after.objectives[place] is None
    assert best.variant.point not in list(elites(store, name, SPACE))


def test_a_named_study_gives_its_best_points_as_well(store: Store) -> None:
    search(store, OTHER, 30)
    search(store, space_of(changed(seq_q=1024, seq_k=1024)), 30)
    name = record_of(space_of(changed(seq_q=1024, seq_k=1024))).name
    found = start(store, record_of(SPACE), SPACE, name)
    entries = standings.leaderboard(store, name, transfer.FIRST)
    assert found.first == [entry.variant.point for entry in entries]
    assert found.known_points.study == name
    judged = search(store, SPACE, 12, found)
    assert judged[: len(found.first)] == list(found.first)
    with pytest.raises(StoreError, match="nowhere"):
        start(store, record_of(SPACE), SPACE, "nowhere")


# What a search makes of it ------------------------------------------------------------------------------------------


def slower(point: dict[str, Value]) -> float:
    """As simulated, three times slower."""
    return 3 * simulated.microseconds(point)


def contrary(point: dict[str, Value]) -> float:
    """What is fast where it comes from is slow."""
    return 2500 / simulated.microseconds(point)


def evaluations(store: Store, found: Start, microseconds: Microseconds, seed: int) -> int:
    """How many points a new study has judged when it has one within 2 % of the best."""
    name = f"{found.known_points is not None} {microseconds.__name__} {seed}"
    judged = search(store, SPACE, 60, found, microseconds, seed, name)
    valid = [point for point in map(SPACE.point, range(len(SPACE))) if right(point)]
    best = min(map(microseconds, valid))
    return next((n for n, point in enumerate(judged, 1) if right(point) and microseconds(point) <= 1.02 * best), 60)


def right(point: dict[str, Value]) -> bool:
    return simulated.truth(Variant.of("sdpa", "cpu", point)).fault is None


@pytest.mark.slow
@pytest.mark.sampled(1, of="known points")
@pytest.mark.parametrize(
    ("there", "here", "most"), [(simulated.microseconds, slower, 0.6), (contrary, simulated.microseconds, 1.6)]
)
def test_known_points_make_a_search_shorter_and_are_unlearned_where_they_mislead(
    store: Store, there: Microseconds, here: Microseconds, most: float
) -> None:
    """Nothing could mislead more than the contrary: what was fastest there is slowest here."""
    search(store, OTHER, 60, microseconds=there)
    found = start(store, record_of(SPACE), SPACE)
    warm, cold = (sum(evaluations(store, by, here, seed) for seed in range(3)) for by in (found, Start()))
    assert warm <= most * cold


# The command line ---------------------------------------------------------------------------------------------------


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """`autotuner tune` on the simulated device."""

    class Simulated(workbench.Workbench):
        def __init__(self, file: SpaceFile, arch: str | None = None, devices: str | None = None) -> None:
            self.chosen, self.device, self.built_from = Chosen(simulated.DEVICE), simulated.DEVICE, ""
            self.space = Space.enumerate(file, self.device.facts)
            self.conditions = simulated.conditions().model_copy(update={"problems": file.problems})
            self.family = Family.find("sdpa")

        @property
        def remarks(self) -> list[str]:
            return []

        def begin(self) -> None:
            pass

        def executor(self) -> InlineExecutor:
            return InlineExecutor(simulated.backend())

    monkeypatch.setattr(workbench, "Workbench", Simulated)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.toml").write_text(simulated.TOML)
    (tmp_path / "two.toml").write_text(simulated.TOML.replace("heads = 2", "heads = 4"))

    def run(space: str, *arguments: str) -> tuple[int, str]:
        words = ["tune", f"{space}.toml", "--trials", "14", "--no-finals", "--store", "studies.db", *arguments]
        done = CliRunner().invoke(app, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    return run


def test_a_sweep_may_begin_with_points_of_ones_own(tune: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    own = "IMPL=fancy BLOCK=64 MODE=b"
    code, _ = tune("one", "--start", own, "--start", "IMPL=plain BLOCK=32", "--trials", "2")
    assert code == 0
    with closing(Store.open(str(tmp_path / "studies.db"))) as store:
        points = [trial.point for trial in queries.judged(store, queries.resolve_study(store))]
    assert [(point["IMPL"], point["BLOCK"]) for point in points] == [("fancy", 64), ("plain", 32)]
    assert points[0]["MODE"] == "b"
    with pytest.raises(InputError, match="STAGES=3': no valid point of two here"):
        tune("two", "--start", "IMPL=fancy BLOCK=128 STAGES=3")


# First points ---------------------------------------------------------------------------------------------------------


SDPA = config.kernels_dir() / "sdpa"
FACTS = {
    "SM": 90,
    "SHARED_LIMIT": 232448,
    "SHARED_SM": 233472,
    "REGISTERS_SM": 65536,
    "CUBLAS": True,
    "TRITON": True,
    "MULTIPROCESSORS": 132,
}
"""Of an H200."""


def on_an_h200(problem: str) -> Space:
    """The shipped space for CUDA on an H200, for that problem."""
    asked = Asked([parsed_problem(problem)])
    return Space.enumerate(SpaceFile.load(config.spaces_dir() / "sdpa_cuda.toml", find_limits, asked), FACTS)


def test_what_is_shipped_is_drawn_from_the_kept_results() -> None:
    found = documents()
    assert {family: (config.kernels_dir() / family / FILE).read_text() for family in found} == found
    assert {"sdpa", "rmsnorm"} <= found.keys()


def test_parameters_that_are_newer_than_a_first_point_do_not_make_it_another() -> None:
    space = on_an_h200("(1,32:8,1x4096,128) float16")
    found = [space.point(place) for place in first_points(space, SDPA)]
    decode = next(point for point in found if point["IMPL"] == "decode")
    assert {"SPLIT": 16, "MERGE": "device", "BLOCK_N": 64, "LOAD": "tma"}.items() <= decode.items()


@pytest.mark.parametrize("problem", ["(1,8,512,64) float16", "(2,24:6,1500,128) bfloat16 causal bshd"])
def test_each_implementation_begins_with_valid_points_of_near_problems(problem: str) -> None:
    space = on_an_h200(problem)
    found = [space.point(place)["IMPL"] for place in first_points(space, SDPA)]
    assert {"mma", "wgmma"} <= {*found}
    assert all(found.count(impl) <= HINTED for impl in found)


def test_a_problem_can_be_tuned_with_its_own_class_left_out() -> None:
    space = on_an_h200("(1,8,512,64) float16")
    shipped = read_first_points(SDPA, "cuda", "sdpa")["mma"]
    own = {tuple(sorted(each.point.items())) for each in shipped if each.distance(space.file.problems) <= SAME_CLASS}
    assert own

    def begun(others: bool) -> set[tuple[tuple[str, object], ...]]:
        points = [space.point(place) for place in first_points(space, SDPA, others)]
        return {
            tuple(sorted((n, v) for n, v in each.items() if n != "IMPL")) for each in points if each["IMPL"] == "mma"
        }

    assert begun(others=False) & own
    assert begun(others=True)
    assert not begun(others=True) & own


def test_of_points_as_near_as_each_other_the_one_that_is_expected_to_be_the_fastest_is_begun_with() -> None:
    """Rows of 192 leave no room for the registers of three consumers: two with a shorter ring, or one."""
    space = on_an_h200("(8,32,2048,192) bfloat16 causal")
    wide = next(each for each in read_first_points(SDPA, "cuda", "sdpa")["wgmma"] if each.point["CONSUMERS"] == 3)
    place = mapped({**wide.point, "IMPL": "wgmma", "STAGES": 3}, space)
    assert place is not None
    assert space.point(place)["CONSUMERS"] == 2


def test_a_fact_of_the_device_stands_for_its_number() -> None:
    point = read_first_points(SDPA, "cpu", "sdpa")["simd"][0]
    assert point.point["THREADS"] == "THREADS_ALLOWED"
    assert point.on({"THREADS_ALLOWED": 48})["THREADS"] == 48


def test_the_draws_of_a_branch_begin_with_its_first_points() -> None:
    space = on_an_h200("(1,4,128,64) float16")
    hints = first_points(space, SDPA)
    study, _ = study_of(0, space)
    study.set_user_attr(HINTS, list(hints.items()))
    begun = {space.index_of(ask(study, space)[1]) for _ in (*space.branches, *hints)}
    firsts = {space.point(place)["IMPL"]: place for place in reversed(hints)}
    assert {*firsts.values()} <= begun


def test_a_search_begins_with_the_implementation_whose_first_points_are_the_fastest() -> None:
    """`mma` stands first, and before these `scalar` came second; `triton` has none. Its second one goes before others:
    of a long problem few are judged."""
    space = on_an_h200("(1,32,2048,128) float16 causal")
    hints = first_points(space, SDPA)
    study, _ = study_of(0, space)
    study.set_user_attr(HINTS, list(hints.items()))
    begun = [ask(study, space)[1]["IMPL"] for _ in (*space.branches, *hints)]
    assert begun[:HINTED] == ["wgmma"] * HINTED
    assert begun[HINTED] != "wgmma"
    assert [*dict.fromkeys(begun)][-2:] == ["scalar", "triton"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("others", "least"), [(False, 0.94), (True, 0.78)])
def test_at_most_kept_problems_a_search_begins_with_the_implementation_that_won(others: bool, least: float) -> None:
    """By the speedup alone, however far it was measured, it was 26 and 24 of the 67."""
    found = [(winner, first) for _, winner, first in begun(others)]
    assert sum(winner == first for winner, first in found) >= least * len(found)


def test_a_file_that_is_wrong_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[[cuda.mma]]\nproblem = "(1,2) float16"\ndevice = "x"\nspeedup = 1.0\npoint = {}\n')
    with pytest.raises(KernelError, match=r"first_points\.toml: cuda\.mma\[0\]: problem"):
        read_first_points(tmp_path, "cuda", "sdpa")
    (tmp_path / FILE).write_text("[[cuda.mma]]\nspeedup = 0\n")
    with pytest.raises(KernelError, match=r"first_points\.toml: cuda\.mma\[0\]"):
        read_first_points(tmp_path, "cuda", "sdpa")
