"""What the API takes and gives: models with names of their own. A column of the store or a field of a record may be
renamed without any of these; tests/web/test_api.py holds what each is called."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, StringConstraints

from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.ratio import Speedup
from autotuner.values.sweep import MOST
from autotuner.values.variant import Value

Text = Annotated[str, StringConstraints(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Answer(Model):
    """Something that the API gives."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, record: object, **more: Any) -> Self:
        """From what has attributes of these names, with `more` in the place of those that it has not."""
        known = {name: getattr(record, name) for name in cls.model_fields if name not in more and hasattr(record, name)}
        return cls.model_validate({**known, **more})


class Refusal(Answer):
    """Why a request was refused."""

    error: str


class Health(Answer):
    """The server is up and can read its store."""

    version: str
    store: str
    writes: bool = Field(description="whether a caller with the token may change anything")
    studies: int


# Studies --------------------------------------------------------------------------------------------------------------


class SpeedupInterval(Answer):
    """t_baseline / t_variant, higher is better, with a confidence interval."""

    low: float | None = Field(description="null where too little was measured to bound it")
    middle: float = Field(description="mean or median")
    high: float | None
    level: float

    @classmethod
    def found(cls, speedup: Speedup) -> SpeedupInterval:
        """The interval without its infinite ends."""
        known = speedup.model_dump(mode="json")
        return cls(middle=known.pop("mid"), **known)


class Finals(Answer):
    """What the last finals of a study came to, as it is now."""

    finished_at: datetime
    host: str
    processes: int
    blocks: int = Field(description="of one process")
    tie: float = Field(description="relative: ratios within it are ties")
    resolution: float | None = Field(description="the smallest difference that could be shown, relative")
    leader: int | None = Field(description="number of the fastest trial in them; null when none is left")
    speedup: SpeedupInterval | None = Field(description="the leader's")
    tied: tuple[int, ...] = Field(description="trials that tie for the lead, the leader among them")
    crowned: bool = Field(description="the leader is faster than all others and the baseline, by more than a tie")
    judged_since: int = Field(description="trials judged after these finals began")

    @classmethod
    def found(cls, finals: Any) -> Finals | None:
        """Of a summary of finals; None for None."""
        if finals is None:
            return None
        return cls.of(finals, speedup=None if finals.speedup is None else SpeedupInterval.found(finals.speedup))


class LatencySpread(Answer):
    """Latencies of the right variants of a study."""

    measured: int
    best_us: float
    median_us: float
    worst_us: float


class Study(Answer):
    """A study at a glance."""

    name: str
    space: str
    device: str
    problems: tuple[Problem, ...]
    cache: str = Field(description="cold or warm: the device's cache before each forward")
    sampler: str
    started_at: datetime
    last_activity: datetime
    running: bool = Field(description="a driver is at work on it now")
    judged: int = Field(description="variants judged")
    by_verdict: dict[str, int] = Field(description="recorded trials, revoked ones left out")
    by_fault: dict[str, int] = Field(description="rejected trials by the code of the first failure")
    revoked: int
    disturbed: tuple[int, ...] = Field(description="trials that were measured on a disturbed machine alone")
    spread: LatencySpread | None
    best_trial: int | None = Field(description="number of the trial to use")
    best_speedup: float | None = Field(description="its t_baseline / t_variant")
    best_confirmed: bool = Field(description="that was confirmed by finals; else it is the estimate of the search")
    best_us: float | None = Field(description="microseconds of one forward of it")
    finals: Finals | None

    @classmethod
    def found(cls, summary: Any) -> Study:
        """Of a summary."""
        return cls.of(summary, best_trial=summary.best_number, finals=Finals.found(summary.finals))


class StudyList(Answer):
    """Every study, the most recently active first."""

    studies: tuple[Study, ...]


class Ranked(Answer):
    """A variant that passed the gate, on the leaderboard."""

    rank: int = Field(description="those that tie for the lead share it")
    trial: int
    parameters: dict[str, Value] = Field(description="IMPL and every parameter")
    verdict: str
    variant_us: float = Field(description="microseconds of one forward of the variant")
    baseline_us: float = Field(description="of the baseline, in the same blocks")
    speedup: SpeedupInterval = Field(description="estimate of the search")
    censored: bool = Field(description="its race was stopped early: an estimate from few blocks")
    confirmed: SpeedupInterval | None = Field(description="in the finals; null for what was not in them")
    tied: bool = Field(description="ties for the lead with others of the finals")
    beaten: bool = Field(description="would tie, but a race of the search has shown one that ties to be faster")
    crowned: bool = Field(description="faster than the others of the finals and the baseline, by more than a tie")

    @classmethod
    def found(cls, entry: Any) -> Ranked:
        """Of an entry of the leaderboard."""
        return cls.of(
            entry,
            trial=entry.number,
            parameters=entry.variant.point,
            verdict=entry.verdict.value,
            variant_us=entry.median_us,
            speedup=SpeedupInterval.found(entry.speedup),
            confirmed=None if entry.confirmed is None else SpeedupInterval.found(entry.confirmed),
        )


class Leaderboard(Answer):
    """The fastest variants of a study, those that were confirmed first."""

    study: str
    baseline: str
    tie: float = Field(description="relative: ratios within it are ties")
    variants: tuple[Ranked, ...]


class BestVariant(Answer):
    """The variant to use. Its gate report is that of its trial; `export` has it with its proof."""

    study: str
    variant: Ranked
    recorded_at: datetime
    finals: Finals | None = Field(description="those that chose it")


class Trial(Answer):
    """A trial in a line. What has no latency that stands has null for speedups and microseconds."""

    number: int
    verdict: str
    fault: str | None = Field(description="code of the check or the step that turned it down")
    case: str | None = Field(description="in which case of the gate")
    detail: str | None = Field(description="what was found there")
    speedup: float | None = Field(description="estimate of the search")
    speedup_low: float | None = Field(description="lower end of its 95 % interval")
    speedup_high: float | None
    censored: bool = Field(description="its race was stopped early: an estimate from few blocks")
    confirmed: float | None = Field(description="speedup in the last finals")
    confirmed_low: float | None
    confirmed_high: float | None
    variant_us: float | None = Field(description="microseconds of one forward")
    baseline_us: float | None = Field(description="of the baseline in the same blocks")
    original: str | None = Field(description="a duplicate's: digest of the artifact that was measured in its place")
    seconds: float = Field(description="that building and judging took")
    session: int = Field(description="number of the run that judged it")
    recorded_at: datetime
    revoked: str | None = Field(description="why its latency was taken back")
    parameters: dict[str, Value] = Field(description="IMPL first, then by name")


class TrialList(Answer):
    """Some trials of a study, by number."""

    study: str
    count: int = Field(description="of all trials")
    trials: tuple[Trial, ...]


# Figures --------------------------------------------------------------------------------------------------------------


class Improvement(Answer):
    """A trial that was better than all before it."""

    number: int
    at: datetime
    judged: int = Field(description="variants judged until then, this one included")
    seconds: float = Field(description="that all trials until then took on devices and builders")
    speedup: float = Field(description="t_baseline / t_variant, of the search")


class History(Answer):
    """Each trial of a study that was the best until then, the first one first."""

    study: str
    improvements: tuple[Improvement, ...]


class VerdictCost(Answer):
    """What trials of one verdict cost, in seconds of devices and builders."""

    verdict: str
    trials: int
    seconds: float
    build_s: float
    check_s: float
    measure_s: float


class Pace(Answer):
    """How fast a study is judged."""

    trials: int
    active_s: float = Field(description="that its runs lasted")
    trials_an_hour: float
    last_trials_an_hour: float = Field(description="of the last 50 trials")
    busy_share: float = Field(description="seconds of trials over seconds of runs; more than 1 on several devices")


class Costs(Answer):
    """What a study has cost."""

    by_verdict: tuple[VerdictCost, ...] = Field(description="the dearest first")
    pace: Pace | None = Field(description="null before two trials were judged")


class ValueCoverage(Answer):
    """A value of a parameter."""

    value: Value
    points: int = Field(description="valid points that have it")
    judged: int
    right: int = Field(description="with a latency")
    best_speedup: float | None
    best_confirmed: bool


class Coverage(Answer):
    """How much of its space a study has judged."""

    points: int = Field(description="valid ones")
    judged: int
    parameters: dict[str, tuple[ValueCoverage, ...]]


class BaselineTime(Answer):
    """What a baseline took at a start of a driver."""

    session: int
    at: datetime
    host: str
    problem: Problem
    baseline: str
    median_us: float = Field(description="at calibration")
    pinned: bool = Field(description="it was the fastest, and variants were raced against it")
    beside_us: float | None = Field(description="the mean beside its variants, where the study has one problem")
    disturbed: str | None = Field(description="why the machine was not calm")


class BaselineList(Answer):
    """What the baselines of a study took at each start of a driver, the oldest first."""

    study: str
    baselines: tuple[BaselineTime, ...]


class Comparison(Answer):
    """Two studies side by side, by the variants that both have judged."""

    first: str
    second: str
    shared: int = Field(description="variants with a latency in both")
    faster: int = Field(description="of them those with a larger speedup in the second")
    speedup: SpeedupInterval | None = Field(
        description="geometric mean of speedup in the second over speedup in the first; null where they share none"
    )
    variant_ratio: float | None = Field(description="geometric mean of microseconds in the second over the first")
    only_right_in_first: int = Field(description="rejected in the second")
    only_right_in_second: int


# Devices --------------------------------------------------------------------------------------------------------------


class Process(Answer):
    """A living process that has a sweep or a device."""

    host: str
    pid: int
    since: datetime
    seen: datetime = Field(description="when it last said that it lives")
    doing: str


class Device(Answer):
    """A device that a worker serves or has served."""

    name: str = Field(description="host and the device's own name there")
    host: str
    backend: str
    model: str
    health: str = Field(description="healthy or quarantined")
    reason: str = Field(description="why it is in quarantine")
    remedy: str
    changed_at: datetime
    seen_at: datetime
    worker: Process | None

    @classmethod
    def found(cls, record: Any) -> Device:
        """Of a record of a device."""
        return cls.of(record, worker=None if record.holder is None else Process.of(record.holder))


class DeviceModel(Answer):
    """A device that studies of this store were made on, by its model."""

    name: str
    backend: str
    studies: tuple[str, ...]
    facts: dict[str, Value | bool]
    running: tuple[str, ...] = Field(description="studies on which a driver is at work now")


class DeviceList(Answer):
    """Every device of the store."""

    devices: tuple[Device, ...] = Field(description="that workers serve or have served")
    models: tuple[DeviceModel, ...] = Field(description="that studies were made on")


class ClearRequest(Model):
    """Devices whose quarantine is to end."""

    names: tuple[Text, ...] = Field(min_length=1, max_length=64)


# The queue ------------------------------------------------------------------------------------------------------------


class SweepRequest(Model):
    """A sweep that is asked for: a space that the server has, by its name, and problems; never a file."""

    space: Text = Field(description="name of a space; GET /spaces lists them")
    problems: tuple[Text, ...] = Field(
        default=(), max_length=64, description="as tables write them; the space's if empty"
    )
    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[\w .:+-]+$")] | None = None
    trials: int = Field(default=60, ge=1, le=MOST)
    minutes: float | None = Field(default=None, gt=0, le=1e6)
    priority: int = Field(default=0, ge=-1000, le=1000, description="larger goes first")
    seed: int = Field(default=0, ge=0, le=MOST)
    sampler: Text = "evolution"
    until_converged: bool = False
    finals: bool = True
    finals_minutes: float = Field(default=2.0, gt=0, le=1e6)
    patience_minutes: float = Field(default=10.0, ge=0, le=1e6)
    calm: bool = Field(default=False, description="believes that nobody disturbs the machine when it starts")


class Sweep(Answer):
    """A sweep: what was asked for, where it is, and what it has found."""

    number: int
    key: str | None = Field(description="under which it can be asked for again without being made twice")
    name: str
    group: int | None = Field(description="the first sweep of the group that it was asked for with; null: none")
    backend: str = Field(description="the kind of device")
    problems: tuple[str, ...]
    trials: int = Field(description="judged variants after which it ends")
    minutes: float | None = Field(description="of work after which it ends")
    priority: int = Field(description="larger goes first")
    state: str = Field(description="queued, running, paused, done, cancelled or failed")
    asked_to: str | None = Field(description="pause or cancel: what its worker was asked to do and has not done yet")
    detail: str = Field(description="why it is in its state")
    place: int | None = Field(description="among those that wait for the same workers, 1 the next; null: it waits not")
    waits: str | None = Field(description="why it does not run")
    study: str | None = Field(description="null: not begun")
    judged: int = Field(description="variants judged in its study")
    best_speedup: float | None = Field(description="t_baseline / t_variant of the trial to use; null: there is none")
    best_confirmed: bool = Field(description="by finals; else it is the estimate of the search")
    worked_s: float = Field(description="seconds of work over all runs")
    left_s: float | None = Field(description="seconds of work left, estimated; null where nobody can tell")
    attempts: int = Field(description="runs in a row that ended by a fault of the machinery")
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    not_before: datetime | None = Field(description="no worker takes it before")
    worker: Process | None

    @classmethod
    def found(cls, outlook: Any, **more: Any) -> Self:
        """Of a sweep and what can be said of it now."""
        sweep = outlook.sweep
        of_sweep = ("key", "name", "group", "priority", "state", "detail", "study", "attempts", "submitted_at")
        times = ("started_at", "finished_at", "not_before")
        own = {name: getattr(sweep, name) for name in (*of_sweep, *times)}
        asked = {name: getattr(sweep.request, name) for name in ("backend", "problems", "trials", "minutes")}
        worker = None if sweep.holder is None else Process.of(sweep.holder)
        renamed = {"number": sweep.id, "asked_to": sweep.wish, "worked_s": sweep.spent_s, "worker": worker}
        return cls.of(outlook, **own, **asked, **renamed, **more)


class SweepNow(Sweep):
    """A sweep at a revision."""

    revision: int = Field(description="number of its last event: pass it as `since` to wait for the next")


class SweepList(Answer):
    """The queue, in the order in which sweeps are due."""

    sweeps: tuple[Sweep, ...]


class SweepEvent(Answer):
    """Something that happened to a sweep."""

    number: int
    at: datetime
    kind: str
    text: str = Field(description="for people, one line")
    data: dict[str, Any] = Field(description="for programs")


class Space(Answer):
    """A space that a sweep can be asked for."""

    name: str
    backend: str
    title: str
    problems: tuple[str, ...]


class SpaceList(Answer):
    """Every space that the server has."""

    spaces: tuple[Space, ...]


# The gate -------------------------------------------------------------------------------------------------------------


class GateRequest(Model):
    """One variant of a family in the operator's folder."""

    family: str = Field(max_length=200, description="name of a folder in the operator's folder")
    device: str = Field(max_length=50, description="kind of device, as in kernel.toml")
    implementation: str = Field(max_length=200, description="IMPL")
    parameters: dict[str, Value] = Field(default_factory=dict, max_length=100)
    problem: Problem = Field(description="what it is judged on")
    threads: int | None = Field(default=None, ge=1, le=4096, description="it may use, on a device that has them; all")
