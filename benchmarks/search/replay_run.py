"""A search replayed: the driver and its store as in a sweep, the fake backend, and a clock that only counts."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autotuner.run.jobs import AnyJob, BuildJob, Result, perform
from autotuner.search.point_sampler import PointSampler
from autotuner.search.samplers import SAMPLERS
from autotuner.spaces.space import BranchPoints, Space
from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan, Start
from autotuner.tuning.transfer import start
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Device
from autotuner.values.variant import Variant
from benchmarks.search.replay_score import Trace, Yardstick
from benchmarks.search.replay_spaces import PROBLEM, RECORDED, Recorded
from tests.helpers.fake_line import FakeLine, Truth

BASELINE_US = 1000.0
"""What stands for the baseline: the objective is the logarithm of milliseconds."""

SAMPLER_CALLS = ("infer_relative_search_space", "before_trial", "sample_relative", "sample_independent", "after_trial")
"""What Optuna asks of a sampler in a trial's life."""

COLUMNS = ("rows", "ends", "work", "sampler")
"""Of a trace, each (n,)."""


class Spent(Exception):
    """The budget is spent."""


class Clock:
    """Virtual seconds: those of evaluations are set, those of the sampler are measured as it works."""

    def __init__(self, charge: bool = True) -> None:
        """Without `charge` the sampler's time is free, and a replay the same on every machine."""
        self._charge = charge
        self.now = 0.0
        self.sampler = 0.0
        self._running = False

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """The block's CPU time, all threads', is the sampler's. Blocks within a block count once."""
        if self._running or not self._charge:
            yield
            return
        self._running, began = True, time.process_time()
        try:
            yield
        finally:
            self._running = False
            spent = time.process_time() - began
            self.now += spent
            self.sampler += spent

    def charged(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, on the sampler's account."""

        def timed(*arguments: Any, **named: Any) -> Any:
            with self.sampling():
                return function(*arguments, **named)

        return timed

    @contextmanager
    def watching(self, sampler: str) -> Iterator[str]:
        """The name under which, in the block, that sampler can be had with its time charged to this clock."""

        def make(space: Space, seed: int) -> PointSampler:
            with self.sampling():
                made = SAMPLERS[sampler](space, seed)
            for call in SAMPLER_CALLS:
                setattr(made, call, self.charged(getattr(made, call)))
            return made

        name = f"{sampler}, watched"
        SAMPLERS[name] = make
        try:
            yield name
        finally:
            del SAMPLERS[name]


class VirtualExecutor:
    """`width` workers, each of which takes a variant from its build to its outcome, in virtual time.

    A build job stands for the whole evaluation and takes what was recorded; all other jobs take nothing. As many
    variants are in flight as there are workers, so none waits: it ends at its begin plus its cost. `wait` gives the job
    that ends first, at equal times the one submitted first. The driver itself is a single process: what it does for one
    variant, the sampler's thinking, delays those it proposes after it.
    """

    lanes = 1

    def __init__(
        self,
        recorded: Recorded,
        workers: int,
        clock: Clock,
        seconds: float,
        evaluations: int,
        goal: frozenset[int] = frozenset(),
    ) -> None:
        """Once `seconds` of evaluations have ended, and `evaluations` of them, `wait` raises Spent; if there is a goal,
        not before one of these places was evaluated.
        """
        self._space, self._ms, self._faults = recorded.space, recorded.ms.tolist(), recorded.faults
        self._cost = recorded.cost.tolist()
        self._workers, self._clock = workers, clock
        self._seconds, self._evaluations, self._goal = seconds, evaluations, goal
        self._places: dict[str, int] = {}
        self._backend = FakeLine(self._truth, BASELINE_US)
        self._jobs: list[tuple[float, int, float, float, AnyJob]] = []
        """Of each: its end, its number, since when its worker was free, and the sampler's seconds until it began."""
        self._free = [0.0] * workers
        """Since when each idle worker is; the one that is so the longest takes the next variant."""
        self._submitted = 0
        self._recorded_s = 0.0
        self._ended: list[tuple[int, float, float, float]] = []
        """What a trace has of each evaluation."""

    @property
    def width(self) -> int:
        return self._workers

    @property
    def builders(self) -> int:
        return self._workers

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        number = self._submitted
        self._submitted += 1
        cost, free = 0.0, self._clock.now
        if isinstance(job, BuildJob):
            cost, free = self._cost[self._place(job.variant)], heapq.heappop(self._free)
        heapq.heappush(self._jobs, (self._clock.now + cost, number, free, self._clock.sampler, job))
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if self._is_spent():
            raise Spent
        if not self._jobs:
            return None
        end, number, free, sampler, job = heapq.heappop(self._jobs)
        self._clock.now = max(self._clock.now, end)
        if isinstance(job, BuildJob):
            place = self._place(job.variant)
            self._recorded_s += self._cost[place]
            self._ended.append((place, end, end - free, sampler))
            heapq.heappush(self._free, end)
        return number, perform(job, self._backend, lambda _: None)

    def _is_spent(self) -> bool:
        reached = not self._goal or any(place in self._goal for place, *_ in self._ended)
        return len(self._ended) >= self._evaluations and self._recorded_s >= self._seconds and reached

    def close(self) -> None:
        self._jobs.clear()

    def trace(self) -> Trace:
        """What has ended so far."""
        rows, *columns = zip(*self._ended, strict=True) if self._ended else ((), (), (), ())
        ends, work, sampler = (np.array(column, dtype=np.float64) for column in columns)
        return Trace(np.array(rows, dtype=np.int64), ends, work, sampler, self._workers)

    def _place(self, variant: Variant) -> int:
        place = self._places.get(variant.digest)
        if place is None:
            found = self._space.index_of(variant.point)
            assert found is not None, f"{variant} is not a point of the space"
            self._places[variant.digest] = place = found
        return place

    def _truth(self, variant: Variant) -> Truth:
        place = self._place(variant)
        fault = self._faults[place]
        return Truth(us=1e3 * self._ms[place]) if fault is None else Truth(fault=fault)


def started_at_random(space: Space, seed: int) -> Space:
    """The space with a default point in each branch that nobody chose: any of its points, failures too."""
    draw = np.random.default_rng([seed, len(space)])
    branches = tuple(_with_default(branch, int(draw.integers(len(branch)))) for branch in space.branches)
    return replace(space, branches=branches, file=space.file.with_branches(each.branch for each in branches))


def _with_default(points: BranchPoints, index: int) -> BranchPoints:
    default = {name: value for name, value in points.point(index).items() if name != "IMPL"}
    return replace(points, branch=points.branch.model_copy(update={"default": default}))


def replay(
    recorded: Recorded,
    yardstick: Yardstick,
    sampler: str,
    seed: int,
    store: Store,
    workers: int = 1,
    charge: bool = True,
) -> Trace:
    """One search by the driver, from a random default point until both budgets are spent or no point is left.

    The study is a new one in `store`. Nothing disturbs a recorded time, so a race is one block long.
    """
    clock = Clock(charge)
    executor = VirtualExecutor(recorded, workers, clock, yardstick.seconds, yardstick.evaluations)
    search(recorded, executor, clock, sampler, seed, store)
    return executor.trace()


def search(
    recorded: Recorded,
    executor: VirtualExecutor,
    clock: Clock,
    sampler: str,
    seed: int,
    store: Store,
    warm: bool = False,
) -> None:
    """A new study in `store`, from a random default point until the executor's budget is spent or no point is left.

    A warm one starts from the nearest related study that the store has.
    """
    space = started_at_random(recorded.space, seed)
    conditions = Conditions(problems=space.file.problems or (PROBLEM,), seeds=(1, 2, 3, 4), min_blocks=1, max_blocks=1)
    with clock.watching(sampler) as name:
        named: dict[str, Any] = {
            "sampler": name,
            "seed": seed,
            "built_from": f"{recorded.name} {name} {executor.width} {seed}",
        }
        device = Device(backend="cuda", name=RECORDED, facts=space.facts, environment={})
        record = Plan(space, device, conditions, **named).record
        found = start(store, record, space) if warm else Start()
        driver = Driver(store, executor, Plan(space, device, conditions, start=found, **named))
        try:
            driver.run(Budget(trials=len(space)))
        except Spent:
            executor.close()


def save(path: Path, traces: Sequence[Trace]) -> None:
    """Writes traces of one sampler on one space, so that they can be scored again."""
    lengths = np.array([len(trace) for trace in traces])
    rows, ends, work, sampler = (np.concatenate([getattr(t, name) for t in traces]) for name in COLUMNS)
    workers = np.array([trace.workers for trace in traces])
    with path.open("wb") as file:
        np.savez_compressed(file, lengths=lengths, workers=workers, rows=rows, ends=ends, work=work, sampler=sampler)


def load(path: Path) -> list[Trace]:
    """What `save` wrote."""
    with np.load(path) as kept:
        cuts = np.cumsum(kept["lengths"])[:-1]
        columns = [np.split(kept[name], cuts) for name in COLUMNS]
        return [Trace(*row) for row in zip(*columns, kept["workers"].tolist(), strict=True)]
