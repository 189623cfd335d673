"""Watches a sweep from outside: where the driver's time goes, when the device worked, and what the estimate of the time
left was worth. For benchmarks/throughput/rates.py."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import optuna

from autotuner.run.executor import Executor
from autotuner.run.jobs import AnyJob, BuildJob, Built, Result
from autotuner.search.point_sampler import PointSampler
from autotuner.store import Lease, Store
from autotuner.store.optuna_storage import DriverStorage
from autotuner.tuning.run.driver import Event, Judged, Started
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Verdict
from autotuner.views.progress import TimeLeft, promoted

ON_DEVICE = ("check", "measure", "soak")
"""The stages of Outcome.seconds that the device is there for."""

QUARTER = 0.25

PARTS: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    (
        "store",
        Store,
        ("ensure_study", "start_session", "finish_session", "record", "record_heat", "flush"),
    ),
    ("store", Lease, ("beat",)),
    ("optuna", optuna.Study, ("ask", "tell", "get_trials", "enqueue_trial")),
    ("optuna", optuna.Trial, ("set_constraint",)),
    ("optuna", DriverStorage, ("set_trial_params",)),
    ("sampler", PointSampler, ("infer_relative_search_space", "sample_relative")),
)
"""What is timed of the driver: label, class, methods. Optuna's part is its bookkeeping with its work on the tables."""


class Stopwatch:
    """Wall and CPU seconds by label. What a labelled call calls under another label is that label's alone."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self._stack: list[str] = ["rest"]
        self._since = (time.perf_counter(), time.thread_time())

    def turn(self) -> None:
        """What passed since the last turn belongs to the label that runs now."""
        now = (time.perf_counter(), time.thread_time())
        self.wall[self._stack[-1]] += now[0] - self._since[0]
        self.cpu[self._stack[-1]] += now[1] - self._since[1]
        self._since = now

    @contextmanager
    def under(self, label: str) -> Iterator[None]:
        """The block's time belongs to the label."""
        self.turn()
        self._stack.append(label)
        try:
            yield
        finally:
            self.turn()
            self._stack.pop()

    def wrapped(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under the label."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            with self.under(label):
                return function(*arguments, **named)

        return timed

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block runs, the methods of PARTS are timed, in this process."""
        plain = [(owner, name, vars(owner)[name]) for _, owner, names in PARTS for name in names]
        labels = [label for label, _, names in PARTS for _ in names]
        try:
            for label, (owner, name, function) in zip(labels, plain, strict=True):
                setattr(owner, name, self.wrapped(label, function))
            yield
        finally:
            for owner, name, function in plain:
                setattr(owner, name, function)


class Around:
    """An executor that does what another does."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def width(self) -> int:
        return self._executor.width

    @property
    def lanes(self) -> int:
        return self._executor.lanes

    @property
    def builders(self) -> int:
        return self._executor.builders

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        return self._executor.submit(job, lane)

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        return self._executor.wait(timeout)

    def close(self) -> None:
        self._executor.close()


class WatchedExecutor(Around):
    """An executor that notes when each job was submitted and ended. Waiting for it and submitting are the label
    "waiting"."""

    def __init__(self, executor: Executor, watch: Stopwatch) -> None:
        super().__init__(executor)
        self._watch = watch
        self._submitted: dict[int, tuple[AnyJob, int, float]] = {}
        self.builds: list[tuple[float, float, float]] = []
        """Submitted, ended, and the wall seconds of the compiler run; in seconds of the monotonic clock."""
        self.device: dict[int, list[tuple[float, float]]] = defaultdict(list)
        """By lane, when its device had something to do."""

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        with self._watch.under("waiting"):
            number = self._executor.submit(job, lane)
        self._submitted[number] = (job, lane, time.monotonic())
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        with self._watch.under("waiting"):
            done = self._executor.wait(timeout)
        if done is not None:
            self._note(done[0], done[1], time.monotonic())
        return done

    def _note(self, number: int, result: Result, ended: float) -> None:
        job, lane, submitted = self._submitted.pop(number)
        if isinstance(job, BuildJob):
            compiler = result.artifact.build_seconds if isinstance(result, Built) else _seconds(result, ("build",))
            self.builds.append((submitted, ended, compiler))
            return
        # A variant's stages are what its device did; of another job it is known only that the device had it.
        earlier = self.device[lane][-1][1] if self.device[lane] else submitted
        worked = _seconds(result, ON_DEVICE) if isinstance(result, Outcome) else ended - max(submitted, earlier)
        self.device[lane].append((ended - worked, ended))

    def device_idle_share(self) -> float | None:
        """From the first build's submission to the last one's end: the share of that time that a device is at no stage
        of a variant and at no other job, the mean over the lanes. None when nothing was built."""
        if not self.builds:
            return None
        begin, end = min(build[0] for build in self.builds), max(build[1] for build in self.builds)
        busy = sum(max(0.0, min(b, end) - max(a, begin)) for jobs in self.device.values() for a, b in jobs)
        return 1 - busy / (self.lanes * (end - begin))


def _seconds(result: object, stages: Sequence[str]) -> float:
    return sum(result.seconds.get(stage, 0.0) for stage in stages) if isinstance(result, Outcome) else 0.0


class Ear:
    """Hears a sweep: its outcomes, when each came, and what was thought of the time left at a quarter of the budget."""

    def __init__(self, trials: int) -> None:
        self._trials = trials
        self._pace: TimeLeft | None = None
        self.outcomes: list[Outcome] = []
        self.at: list[float] = []
        self.cpu_at: list[float] = []
        """CPU seconds of the driver's thread when each came."""
        self.answers: list[tuple[float, float, float, bool]] = []
        """When, seconds on a device, seconds of the build, whether it was promoted."""
        self.left_at_quarter: tuple[float, float] | None = None
        """When, and how many seconds were thought to be left."""

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Started):
            self._pace = self._pace or TimeLeft(self._trials, now, event.judged)
        if not isinstance(event, Judged) or self._pace is None:
            return
        self.outcomes.append(event.outcome)
        self.at.append(now)
        self.cpu_at.append(time.thread_time())
        is_promoted = promoted(event.outcome)
        busy, build = _seconds(event.outcome, ON_DEVICE), _seconds(event.outcome, ("build",))
        self.answers.append((now, busy, build, is_promoted))
        self._pace.judged(now, is_promoted)
        if self.left_at_quarter is None and event.judged >= QUARTER * self._trials:
            self.left_at_quarter = (now, self._pace.left_s(now))

    def columns(self, since: float) -> dict[str, list[float] | list[bool]]:
        """`answers` by column, times counted from `since`: enough to make the estimates again."""
        at, busy, build, led = (list(column) for column in zip(*self.answers, strict=True))
        return {"at_s": [each - since for each in at], "busy_s": busy, "build_s": build, "promoted": led}

    def estimate(self) -> dict[str, float] | None:
        """The time left as it was estimated at a quarter of the budget, against what it took."""
        if self.left_at_quarter is None:
            return None
        when, left = self.left_at_quarter
        truth = self.at[-1] - when
        return {"estimated_s": left, "took_s": truth, "ratio": left / truth if truth else float("nan")}


def stage_sums(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Wall seconds of each stage, added up."""
    stages = ("build", *ON_DEVICE)
    return {stage: sum(_seconds(outcome, (stage,)) for outcome in outcomes) for stage in stages}


def medians_ms(outcomes: Sequence[Outcome]) -> dict[str, float | int | None]:
    """Median milliseconds: of G1 to G5 and of the whole gate for variants that passed it, of the timing for those that
    racing stopped early."""
    passed = [o for o in outcomes if o.gate is not None and o.gate.passed and o.verdict != Verdict.DEDUPLICATED]
    early = [o for o in outcomes if o.verdict == Verdict.RACED_OUT]
    levels = tuple(f"G{level}" for level in range(1, 6))
    gates = [sum(c.seconds for c in o.gate.checks if c.code.startswith(levels)) for o in passed if o.gate is not None]
    return {
        "passed": len(passed),
        "g1_to_g5": _median_ms(gates),
        "gate": _median_ms([_seconds(o, ("check",)) for o in passed]),
        "stopped_early": len(early),
        "measure_stopped_early": _median_ms([_seconds(o, ("measure",)) for o in early]),
        "measure": _median_ms([_seconds(o, ("measure",)) for o in passed]),
    }


def _median_ms(seconds: Sequence[float]) -> float | None:
    return 1e3 * median(seconds) if seconds else None


def rounded(value: Any) -> Any:
    """The same document with floats to five significant digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value
