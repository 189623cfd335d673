"""The finals: from heats in fresh processes, each of one finalist and the baseline, to confirmed ratios, a tie set and,
rarely, one winner.

docs/method/finals.md says how the method and its constants were chosen.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from pydantic import Field

from autotuner.race.statistics import LEVEL, UNKNOWN, Between, deviation, holm, p_positive, student, variance_ratio
from autotuner.race.tie import bounds, logs
from autotuner.values.model import Model
from autotuner.values.outcome import Heat
from autotuner.values.ratio import LogRatio, Objective, combine

FIRST = 2
"""Processes of every finalist, before the first look at who is still in the running."""

PROCESSES = 7
"""Processes, at most, of one that stays in the running: it has one more after each look."""

FINAL_BLOCKS = 24
"""Blocks of a heat."""

CROWN_ALPHA = 0.01
"""Probability that any of the comparisons with the leader errs, over all looks. Whichever looks fastest leads, so two
equal ones have two chances."""

CONTRADICTION = 0.1
"""Where heats as far apart, or as close together, had at most this probability, the search's races do not count."""
BORROWED = 3
"""How many times its own degrees of freedom the interval of one finalist has at most: others may differ less from
process to process than it does."""

Raced = Iterable[Sequence[Sequence[float]]]
"""ln(t_incumbent / t_baseline) in races of the search; [incumbent][race][problem]."""


class Confirmed(Model):
    """One finalist after the finals."""

    digest: str
    log_ratio: LogRatio = Field(description="ln(t_variant / t_baseline), the process as the unit")
    processes: int = Field(description="in which it raced")
    tied: bool = Field(description="in the tie set: not shown to be slower than the leader beyond the tie band")
    alike: bool = Field(description="shown to be slower than the leader by no more than the tie band")


class Standing(Model):
    """The result of the finals, or what they have shown so far."""

    finalists: tuple[Confirmed, ...] = Field(description="in the order of their first heats; failed ones left out")
    leader: str | None = Field(description="digest of the fastest finalist; None when all failed")
    crowned: bool = Field(description="the leader is faster than every other finalist and the baseline, beyond the tie")
    processes: int = Field(description="of the finalist that had most")
    tie: float
    resolution: float | None = Field(
        default=None,
        description="the smallest difference from the leader that would have shown, relative; null: none could",
    )


class Bias(NamedTuple):
    """By how much what held samples up may have made a mean too large or too small."""

    less: float = 0.0
    more: float = 0.0


class _Runner(NamedTuple):
    """A finalist's values, one a process."""

    digest: str
    values: Sequence[float]
    bias: Bias = Bias()

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def freedom(self) -> int:
        return len(self.values) - 1


def confirm(
    heats: Sequence[Heat], tie: float, objective: Objective = "mean", is_last: bool = False, raced: Raced = ()
) -> Standing:
    """What the heats show. Each heat is one fresh process, and the process is the unit of every interval and test.

    `tie` is relative: a ratio of two variants within 1 + tie is a tie. An entrant with a fault or without a finite time
    in any heat is out. Finalists may have different numbers of processes; a heat without entrants says nothing here.
    `is_last`: no look follows, as there is no time for another process. `raced`: what the search knows of how far
    processes are apart.
    """
    over = combine(objective)
    return standing_of(process_values(heats, over), tie, biases(heats, over), is_last, apart(raced, over))


def apart(raced: Raced, over: Callable[[Sequence[float]], float]) -> Between:
    """How far apart processes were in which the search raced one incumbent; no finals selected these."""
    return Between.of([[over(race) for race in races] for races in raced])


def standing_of(
    values: Mapping[str, Sequence[float]],
    tie: float,
    bias: Mapping[str, Bias] | None = None,
    is_last: bool = False,
    searched: Between = UNKNOWN,
) -> Standing:
    """The same from the values of each finalist's processes, by its digest: ln(t_variant / t_baseline). `bias`: of
    those whose samples were held up. `searched`: how far apart processes of the search were."""
    runners = [_Runner(digest, each, (bias or {}).get(digest, Bias())) for digest, each in values.items()]
    if not runners:
        return Standing(finalists=(), leader=None, crowned=False, processes=0, tie=tie)
    field = _Field(runners, tie, is_last, searched)
    slower, beats_baseline = field.slower()
    leading = slower.count(False)
    return Standing(
        finalists=tuple(
            Confirmed(
                digest=runner.digest,
                log_ratio=field.interval(runner, 0 if behind else leading),
                processes=len(runner.values),
                tied=not behind,
                alike=field.is_alike(runner),
            )
            for runner, behind in zip(runners, slower, strict=True)
        ),
        leader=field.leader.digest,
        crowned=beats_baseline and leading == 1,
        processes=max(len(runner.values) for runner in runners),
        tie=tie,
        resolution=field.resolution(),
    )


def process_values(heats: Sequence[Heat], over: Callable[[Sequence[float]], float]) -> Mapping[str, list[float]]:
    """By digest of those who never failed: the median over the blocks, one a process, of what `over` makes of the
    problems' ln(t_variant / t_baseline) in a block."""
    found: dict[str, list[float]] = {}
    out: set[str] = set()
    for heat in heats:
        for place, digest in enumerate(heat.entrants):
            if _sound(heat, place):
                found.setdefault(digest, []).append(median(map(over, zip(*logs(heat, place), strict=True))))
            else:
                out.add(digest)
    return {digest: values for digest, values in found.items() if digest not in out}


def biases(heats: Sequence[Heat], over: Callable[[Sequence[float]], float]) -> Mapping[str, Bias]:
    """The bias of each whose samples were held up, by its digest: the mean over its processes."""
    found: dict[str, list[tuple[float, float]]] = {}
    for heat in heats:
        for place, digest in enumerate(heat.entrants):
            if _sound(heat, place):
                ends = (logs(heat, place), *bounds(heat, place))
                mid, low, high = (median(map(over, zip(*each, strict=True))) for each in ends)
                less, more = max(0.0, mid - low) + heat.unseen, max(0.0, high - mid) + heat.unseen
                found.setdefault(digest, []).append((less, more))
    return {digest: Bias(*map(fmean, zip(*each, strict=True))) for digest, each in found.items()}


def _sound(heat: Heat, place: int) -> bool:
    """Whether the entrant was timed in every block, without a fault."""
    return bool(heat.us[place]) and all(heat.us[place]) and place not in heat.faults


class _Field:
    """All finalists together: what one says of the others' noise, and each beside the leader.

    The deviation between processes of a finalist is its own, or the common one if that is larger: of so few processes
    its own may be small by chance. The common one is that of all heats, moderated by that of the search's races: their
    mean square, weighted by their degrees of freedom, as if the heats' variance were drawn around theirs (Smyth,
    Statistical Applications in Genetics and Molecular Biology 3, 2004, section 3). His estimate of the weight needs
    thousands of variances. Here it is that of the heats at most, and nothing where an F test denies that both are of
    one kind; and the deviation is never smaller than the heats' own.
    """

    def __init__(self, runners: Sequence[_Runner], tie: float, is_last: bool, searched: Between) -> None:
        self._runners, self._tie, self._is_last = runners, math.log1p(tie), is_last
        self.leader = min(runners, key=lambda runner: runner.mean)
        self._freedom, self._common = _moderated(Between.of([runner.values for runner in runners]), searched)

    def slower(self) -> tuple[list[bool], bool]:
        """Which finalists are shown to be slower than the leader, beyond the tie; and whether the baseline is.

        By Holm's procedure over all of them, with the share of the error that one look has.
        """
        rivals = [runner for runner in self._runners if runner is not self.leader]
        lead = self.leader.bias.more
        values = [self._p_slower(self._ahead(e) - e.bias.less - lead, self._error(e, self.leader)) for e in rivals]
        values.append(self._p_slower(-self.leader.mean - lead, self._error(self.leader)))
        *shown, baseline = holm(values, self._alpha())
        behind = dict(zip((each.digest for each in rivals), shown, strict=True))
        return [behind.get(runner.digest, False) for runner in self._runners], baseline

    def is_alike(self, runner: _Runner) -> bool:
        """Whether it is shown to be slower than the leader by no more than the tie."""
        if runner is self.leader:
            return True
        if not self._freedom or not runner.freedom:  # its own figure is not known
            return False
        width = student(LEVEL, self._freedom) * self._error(runner, self.leader)
        return self._ahead(runner) + runner.bias.more + self.leader.bias.less + width <= self._tie

    def interval(self, runner: _Runner, leading: int) -> LogRatio:
        """Student's. One of several that may be `leading` may be chosen because it looks fast: the end at which it is
        slower has the error of a choice among so many (Bonferroni's), and it has few degrees of freedom from others. A
        chance that made it look fast may have made its values lie close together, too."""
        freedom = min(self._freedom, BORROWED * runner.freedom) if leading else self._freedom
        error = self._error(runner)
        less, more = (
            student(1 - (1 - LEVEL) / 2 / choices, freedom) * error if freedom else math.inf
            for choices in (1, max(1, leading))
        )
        low, high = runner.mean - less - runner.bias.less, runner.mean + more + runner.bias.more
        return LogRatio(low=low, mid=runner.mean, high=high)

    def resolution(self) -> float | None:
        """The smallest difference from the leader that the first of Holm's steps would show, relative."""
        if not self._freedom:
            return None
        alpha = self._alpha() / len(self._runners)
        error = self._error(self.leader) * math.sqrt(2)
        held_up = max(runner.bias.less for runner in self._runners) + self.leader.bias.more
        return math.expm1(self._tie + student(1 - alpha, self._freedom) * error + held_up)

    def _ahead(self, runner: _Runner) -> float:
        """By how much the leader is ahead of it: ln(t / t_leader)."""
        return runner.mean - self.leader.mean

    def _error(self, *runners: _Runner) -> float:
        """The standard error of the sum or difference of their means."""
        return math.sqrt(math.fsum(self._deviation(each) ** 2 / len(each.values) for each in runners))

    def _deviation(self, runner: _Runner) -> float:
        return max(deviation(runner.values), self._common) if runner.freedom else self._common

    def _p_slower(self, ahead: float, error: float) -> float:
        """The p-value of the test that the difference is above the tie."""
        return p_positive(ahead - self._tie, error, self._freedom)

    def _alpha(self) -> float:
        """The share of CROWN_ALPHA that this look has: those on the way half of it in equal parts, the last one what
        they left. Time decides that it is the last, and not what was seen."""
        processes, each = max(len(runner.values) for runner in self._runners), CROWN_ALPHA / 2 / (PROCESSES - FIRST)
        if self._is_last or processes >= PROCESSES:
            return CROWN_ALPHA - each * max(0, min(processes, PROCESSES) - FIRST)
        return each


def _moderated(heats: Between, searched: Between) -> Between:
    """Of both, the search's races weighed as `_Field` says."""
    weight = min(searched.freedom, heats.freedom)
    if not weight or not searched.deviation:
        return heats
    likely = variance_ratio(heats, searched)
    if min(likely, 1 - likely) < CONTRADICTION:
        return heats
    freedom = weight + heats.freedom
    squares = weight * searched.deviation**2 + heats.freedom * heats.deviation**2
    return Between(freedom, max(heats.deviation, math.sqrt(squares / freedom)))
