"""Whole simulated sweeps of which the truth is known: the driver's search, its finals, and what became of everyone.

`Deviations` lie between the truth and a sample. All is the stack's own code but the samples (fake_line.py).
"""

import math
import random
from collections.abc import Mapping
from typing import NamedTuple, Self

from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import FinalsRecord, Store
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan, Start
from autotuner.values.outcome import Measurement, Stop
from autotuner.values.variant import Value, Variant
from tests.helpers import simulated
from tests.helpers.fake_line import Deviations, FakeLine, Truth
from tests.helpers.files import FILES
from tests.helpers.inline_executor import InlineExecutor

ORDINARY = Deviations(noise=0.005, spikes=0.02, process=0.002, drift=0.03, throttling=0.002)
REGIMES: dict[str, Deviations] = {
    "one load": ORDINARY.model_copy(update={"process": 0.0}),
    "ordinary": ORDINARY,
    "throttling": ORDINARY.model_copy(update={"throttling": 0.03}),
    "drift": ORDINARY.model_copy(update={"drift": 0.08}),
    "process 1 %": ORDINARY.model_copy(update={"process": 0.01}),
    "heavy tails": ORDINARY.model_copy(update={"process": 0.005, "tails": True}),
    "uneven processes": ORDINARY.model_copy(update={"process": 0.001}),
}
"""Every sample has 0.5 % noise, and 2 % of them take half as long again. The rest differs."""

UNEVEN = 0.01
"""In "uneven processes" every other candidate has this deviation between processes, ten times that of the others."""

BASELINE_US, EQUAL_US = 100.0, 80.0
SLOWER = (1.05,) * 5 + (1.1,) * 2 + (1.6,) * 2
CANDIDATES = 26
BETTER = 1 / 1.02

SPACE = Space.enumerate(SpaceFile.load(FILES / "candidates.toml"), simulated.DEVICE.facts)
DEFAULT: dict[str, Value] = {"IMPL": "plain", "N": 0}


class Land(NamedTuple):
    """What is true of each candidate; number 0 is the default."""

    deviations: Deviations
    truths: tuple[Truth, ...]

    @classmethod
    def drawn(cls, regime: str, better: bool, draw: random.Random) -> Self:
        """Most candidates are equal, some are slower, and one is faster if `better`; in random order."""
        factors = [*SLOWER, *([1.0] * (CANDIDATES - len(SLOWER)))]
        if better:
            factors[-1] = BETTER
        draw.shuffle(factors)
        deviation = [UNEVEN if regime == "uneven processes" and place % 2 else None for place in range(CANDIDATES)]
        truths = [Truth(us=EQUAL_US * f, process=d) for f, d in zip(factors, deviation, strict=True)]
        return cls(REGIMES[regime], tuple(truths))

    def truth(self, variant: Variant) -> Truth:
        return self.truths[int(variant.point["N"])]

    def backend(self, seed: int) -> FakeLine:
        """A process on the device."""
        return FakeLine(self.truth, BASELINE_US, deviations=self.deviations, seed=seed)


class Trial(NamedTuple):
    """A candidate after its race."""

    truth: Truth
    raced: Truth | None
    """The incumbent it raced against."""
    measurement: Measurement


class Sweep(NamedTuple):
    """A search and its finals."""

    truths: Mapping[str, Truth]
    """By the artifact's digest."""
    trials: list[Trial]
    finals: FinalsRecord


def sweep(store: Store, regime: str, better: bool, seed: int) -> Sweep:
    """One whole sweep, as a study of its own. `better`: one candidate is 2 % faster than all others, else the best are
    equal."""
    name = f"{regime} {better} {seed}"
    draw = random.Random(name)
    random.seed(draw.random())  # a race draws the order of its arms from this
    land = Land.drawn(regime, better, draw)

    def process() -> FakeLine:
        return land.backend(draw.randrange(2**31))

    conditions, executor = simulated.conditions(), InlineExecutor(process(), fresh=process)
    plan = Plan(
        SPACE, simulated.DEVICE, conditions, sampler="random", seed=seed, built_from=name, start=Start(first=[DEFAULT])
    )
    driver = Driver(store, executor, plan)
    driver.run(Budget(trials=CANDIDATES))
    trials = Retrials(store, driver.name, conditions, executor, {})
    finals = Finals(trials, Variant.of("sdpa", "cpu", DEFAULT).digest).run()
    outcomes = dict(store.outcomes(driver.name)).values()
    truths = {o.artifact.digest: land.truth(o.variant) for o in outcomes if o.artifact is not None}
    raced = [(land.truth(o.variant), o.measurement) for o in outcomes if o.measurement is not None]
    return Sweep(truths, [Trial(truth, truths.get(m.incumbent or ""), m) for truth, m in raced], finals)


class Tally:
    """Counts over many sweeps of one kind."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        """Pairs: those of which it holds, and all."""
        self.blocks: list[int] = []
        """Of each search race."""
        self.slower_blocks: list[int] = []
        """Of each race of a candidate that was 5 % slower than the incumbent."""
        self.ties: list[float] = []
        self.finalists: list[int] = []
        self.widths: list[float] = []
        """To one side, of the leader's interval."""

    def add(self, sweep: Sweep) -> None:
        """One more sweep."""
        self._final(sweep)
        for trial in sweep.trials:
            self._trial(trial)

    def merge(self, other: Self) -> None:
        """Takes the other's counts too."""
        for name, (part, whole) in other.counts.items():
            pair = self.counts.setdefault(name, [0, 0])
            pair[0] += part
            pair[1] += whole
        for mine, theirs in (
            (self.blocks, other.blocks),
            (self.slower_blocks, other.slower_blocks),
            (self.finalists, other.finalists),
        ):
            mine += theirs
        self.ties += other.ties
        self.widths += other.widths

    def share(self, name: str) -> float:
        """NaN when there was nothing to count."""
        part, whole = self.counts.get(name, (0, 0))
        return part / whole if whole else math.nan

    def _count(self, name: str, held: bool) -> None:
        pair = self.counts.setdefault(name, [0, 0])
        pair[0] += held
        pair[1] += 1

    def _final(self, sweep: Sweep) -> None:
        standing, truths = sweep.finals.standing, sweep.truths
        assert standing.leader is not None
        best = min(truth.us for truth in truths.values())
        leads = truths[standing.leader].us == best
        if best < EQUAL_US:
            self._count("found", standing.crowned and leads)
            self._count("tied", any(f.tied and truths[f.digest].us == best for f in standing.finalists))
        self._count("crowned wrongly", standing.crowned and not (best < EQUAL_US and leads))
        for finalist in standing.finalists:
            truth, interval = math.log(truths[finalist.digest].us / BASELINE_US), finalist.log_ratio
            self._count("covered", interval.low <= truth <= interval.high)
            if finalist.digest == standing.leader:
                self._count("leader covered", interval.low <= truth <= interval.high)
                self.widths.append((interval.high - interval.low) / 2)
        self.finalists.append(len(standing.finalists))
        self.ties.append(sweep.finals.tie)

    def _trial(self, trial: Trial) -> None:
        if trial.raced is None:
            return
        lost, ratio = trial.measurement.censored, trial.truth.us / trial.raced.us
        self.blocks.append(len(trial.measurement.timings[0].variant_us))
        if ratio == 1:
            self._count("equal lost", lost)
        elif ratio < 1:
            self._count("better lost", lost)
            self._count("better promoted", trial.measurement.stopped == Stop.PROMOTED)
        elif math.isclose(ratio, 1.05, rel_tol=1e-3):
            self._count("5 % slower removed", lost)
            self.slower_blocks.append(self.blocks[-1])
