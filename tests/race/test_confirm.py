"""Statistics: the finals' on heats whose truth is known, ours beside those of scipy.stats, and what is not believed."""

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from autotuner.race.arms import Clocks
from autotuner.race.confirm import FINAL_BLOCKS, FIRST, PROCESSES, Standing, confirm
from autotuner.race.plausible import MARGIN, clocks_disagree, floor_us, too_fast
from autotuner.race.statistics import TRIM, deviation, holm, p_positive, student, trimmed, trimmed_interval
from autotuner.values.conditions import TIE
from autotuner.values.outcome import Ceilings, Heat
from autotuner.values.verdict import Fault, Verdict
from autotuner.views.surrogate_beliefs import _rank_correlation
from tests.helpers.fake_line import FakeArm
from tests.helpers.racing import PROBLEM, race

FAULT = Fault(verdict=Verdict.CORRUPTING, code="G7.guard", detail="wrote past its output")


def heats(
    us: Sequence[float],
    processes: int = PROCESSES,
    *,
    between: Sequence[float] | float = 0.001,
    noise: float = 0.002,
    spikes: float = 0.02,
    seed: int = 0,
    names: Sequence[str] = "abcdefghijklmnopqrst",
    problems: int = 1,
) -> list[Heat]:
    """Heats of entrants that take `us` microseconds beside a baseline of 100, on every problem alike."""
    draw = random.Random(seed)
    deviations = [between] * len(us) if isinstance(between, float) else between

    def heat() -> Heat:
        loaded = [one * math.exp(draw.gauss(0, sd)) for one, sd in zip(us, deviations, strict=True)]

        def times(true: float) -> tuple[float, ...]:
            lifts = [0.4 * (draw.random() < spikes) for _ in range(FINAL_BLOCKS)]
            return tuple(true * math.exp(draw.gauss(0, noise) + lift) for lift in lifts)

        return Heat(
            entrants=tuple(names[: len(us)]),
            baselines=("fake",) * problems,
            us=tuple(tuple(times(one) for _ in range(problems)) for one in loaded),
            baseline_us=tuple(times(100.0) for _ in range(problems)),
        )

    return [heat() for _ in range(processes)]


def tied(standing: Standing) -> list[str]:
    return [finalist.digest for finalist in standing.finalists if finalist.tied]


def test_a_clearly_faster_finalist_is_crowned_and_the_tie_set_is_it_alone() -> None:
    standing = confirm(heats([80, 77, 82]), TIE)
    assert (standing.leader, standing.crowned, tied(standing)) == ("b", True, ["b"])
    assert [finalist.digest for finalist in standing.finalists] == ["a", "b", "c"]
    assert (standing.processes, standing.tie) == (PROCESSES, TIE)
    for finalist, us in zip(standing.finalists, [80, 77, 82], strict=True):
        assert finalist.log_ratio.low < math.log(us / 100) < finalist.log_ratio.high
        assert finalist.log_ratio.mid == pytest.approx(math.log(us / 100), abs=0.005)


def test_the_last_look_has_what_those_before_it_left() -> None:
    """Finals that time ends tell more apart than a look on the way does; where all processes were, the same."""
    for processes in range(2, PROCESSES + 1):
        entered = heats([80, 80], processes, between=0.003)
        way, last = (confirm(entered, TIE, is_last=is_last).resolution or 0.0 for is_last in (False, True))
        assert (last < way) == (processes < PROCESSES)


def test_equal_finalists_are_a_tie() -> None:
    standing = confirm(heats([80, 80, 80, 90]), TIE)
    assert not standing.crowned
    assert tied(standing) == ["a", "b", "c"]


def test_the_process_is_the_unit() -> None:
    """However many blocks: processes that differ by 1 % leave the ratio known to no better than that."""
    standing = confirm(heats([80, 79], between=0.01, noise=1e-6), TIE)
    for finalist in standing.finalists:
        assert (finalist.log_ratio.high - finalist.log_ratio.low) / 2 > 0.004


@pytest.mark.parametrize("processes", [0, 1])
def test_fewer_than_two_processes_show_nothing(processes: int) -> None:
    standing = confirm(heats([60, 80], processes), TIE)
    assert not standing.crowned
    assert all(finalist.tied for finalist in standing.finalists)
    assert all(math.isinf(finalist.log_ratio.high) for finalist in standing.finalists)
    assert standing.leader == ("a" if processes else None)


def test_a_finalist_with_a_fault_in_any_heat_is_out() -> None:
    entered = heats([70, 80, 90])
    entered[2] = entered[2].model_copy(update={"us": ((), *entered[2].us[1:]), "faults": {0: FAULT}})
    standing = confirm(entered, TIE)
    assert [finalist.digest for finalist in standing.finalists] == ["b", "c"]
    assert (standing.leader, standing.crowned) == ("b", True)


@pytest.mark.parametrize("us", [math.nan, math.inf, 0.0])
def test_a_heat_with_a_time_that_is_none_is_refused(us: float) -> None:
    heat = heats([70, 80])[1]
    broken = ((us, *heat.us[0][0][1:]),)
    with pytest.raises(ValidationError, match=r"us\.0\.0\.0"):
        Heat.model_validate({**heat.model_dump(), "us": (broken, heat.us[1])})


def alone(entered: Sequence[Heat]) -> list[Heat]:
    """The same with each entrant in a heat of its own, and the baseline in one."""
    found = [heat.model_copy(update={"entrants": (), "us": ()}) for heat in entered]
    for heat in entered:
        for entrant, us in zip(heat.entrants, heat.us, strict=True):
            found.append(heat.model_copy(update={"entrants": (entrant,), "us": (us,)}))
    return found


def test_who_was_dropped_has_fewer_processes_and_stays_shown_to_be_slower() -> None:
    """A finalist that is far behind has had only the first ones."""
    kept = [heat for heat in alone(heats([80, 88, 80.2])) if heat.entrants != ("b",)]
    dropped = [heat for heat in alone(heats([80, 88, 80.2], FIRST)) if heat.entrants == ("b",)]
    standing = confirm([*kept, *dropped], TIE)
    assert [each.processes for each in standing.finalists] == [PROCESSES, PROCESSES, FIRST]
    assert tied(standing) == ["a", "c"]
    slow = standing.finalists[2].log_ratio
    assert slow.low < math.log(0.88) < slow.high
    assert slow.high - slow.low < 0.03  # the others say how noisy it is


def test_a_difference_above_the_resolution_shows_and_one_below_does_not() -> None:
    """Judged on many draws: what is as far off as the resolution says is found half of the time, about."""
    found = {1.0: 0, 2.0: 0, 0.3: 0}
    for seed in range(20):
        first = confirm(heats([80, 80], between=0.003, seed=seed), TIE).resolution
        assert first is not None
        for times in found:
            entered = heats([80, 80 * (1 + times * first)], between=0.003, seed=100 + seed)
            found[times] += len(tied(confirm(entered, TIE))) == 1
    assert found[2.0] == 20
    assert 3 <= found[1.0] <= 17
    assert found[0.3] <= 2


def searched(between: float, seed: int = 0) -> list[list[tuple[float]]]:
    """Races of the search with two incumbents, that far apart."""
    draw = random.Random(seed)
    return [[(draw.gauss(math.log(level), between),) for _ in range(8)] for level in (0.9, 0.8)]


def widths(entered: Sequence[Heat], raced: Sequence[Sequence[tuple[float]]] = ()) -> list[float]:
    found = confirm(entered, TIE, raced=raced).finalists
    return [each.log_ratio.high - each.log_ratio.low for each in found]


def test_the_searchs_races_say_how_far_processes_are_apart_where_there_are_few_heats() -> None:
    """Two heats of each of two finalists: the intervals are as wide as their own few say, about, and seldom wrong."""
    narrower = covered = 0
    for seed in range(40):
        entered, races = heats([80, 80], FIRST, between=0.01, seed=seed), searched(0.01, seed)
        narrower += sum(one < other for one, other in zip(widths(entered, races), widths(entered), strict=True))
        for each in confirm(entered, TIE, raced=races).finalists:
            covered += each.log_ratio.low <= math.log(0.8) <= each.log_ratio.high
    assert narrower > 60
    assert covered >= 74


@pytest.mark.parametrize("between", [0.0005, 0.2])
def test_races_of_the_search_that_heats_contradict_count_for_nothing(between: float) -> None:
    entered = heats([80, 80, 80], between=0.01)
    assert widths(entered, searched(between)) == widths(entered)


def blockwise(entered: Sequence[Heat]) -> list[Heat]:
    """Each block as if it were a process of its own."""
    return [
        heat.model_copy(
            update={
                "us": tuple(tuple((problem[block],) for problem in entrant) for entrant in heat.us),
                "baseline_us": tuple((problem[block],) for problem in heat.baseline_us),
            }
        )
        for heat in entered
        for block in range(FINAL_BLOCKS)
    ]


def coverage(
    between: Sequence[float],
    finals: int,
    units: Callable[[Sequence[Heat]], Sequence[Heat]] = list,
    spikes: float = 0.02,
) -> tuple[float, float, float]:
    """Of finals between equal finalists: intervals that hold the truth, of all and of the leaders; and crowns."""
    truth, held, led, crowned = math.log(0.8), list[bool](), list[bool](), 0
    names = [str(place) for place in range(len(between))]
    for seed in range(finals):
        us = [80.0] * len(between)
        entered = heats(us, between=between, seed=seed, names=names, noise=0.005, spikes=spikes)
        standing = confirm(units(entered), TIE)
        inside = {f.digest: f.log_ratio.low <= truth <= f.log_ratio.high for f in standing.finalists}
        held += inside.values()
        led.append(inside[standing.leader or ""])
        crowned += standing.crowned
    return fmean(held), fmean(led), crowned / finals


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "between", [[0.002] * 9, [0.01] * 9, [0.001, 0.01] * 4, [0.01] * 2], ids=["even", "wide", "uneven", "two"]
)
def test_intervals_hold_the_truth_and_equals_are_not_crowned(between: list[float]) -> None:
    """Also of the leader, who was chosen because it looked fast."""
    all_of_them, leaders, crowned = coverage(between, 150)
    assert all_of_them >= 0.93
    assert leaders >= 0.87  # 90 % less two standard errors of so few finals
    assert crowned <= 0.04


def test_with_the_block_as_the_unit_the_truth_is_missed() -> None:
    """So the bounds above can fail."""
    assert coverage([0.01] * 9, 20, blockwise, spikes=0.0)[0] < 0.5


# Its tests ----------------------------------------------------------------------------------------------------------


def test_holm_rejects_as_in_its_textbook_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([0.04, 0.04], 0.05) == [False, False]
    assert holm([], 0.05) == []
    assert holm([math.nan, 0.001], 0.05) == [False, True]


# Our statistics against those of scipy.stats, which is too slow to import where they are needed -----------------------


COUNTS = [2, 3, 5, 6, 10, 17, 30, 60]


def drawn(count: int, seed: int = 0) -> list[float]:
    draw = random.Random(f"{count} {seed}")
    return [draw.gauss(0.01, 0.005) * (1.5 if draw.random() < 0.1 else 1.0) for _ in range(count)]


@pytest.mark.parametrize("count", [10, 17, 30, 60])
def test_the_trimmed_means_error_is_that_of_scipys_yuen_test_and_its_interval_students(count: int) -> None:
    """The test compares two samples: of these the errors add up as squares."""
    one, other = drawn(count, 1), drawn(count, 2)
    (first, error, _), (second, another, _) = trimmed(one), trimmed(other)
    theirs = stats.ttest_ind(one, other, equal_var=False, trim=TRIM)
    assert (first - second) / math.hypot(error, another) == pytest.approx(float(theirs.statistic), rel=1e-12)
    mean, error, freedom = trimmed(one)
    low, high = stats.t.interval(0.95, freedom, loc=mean, scale=error)
    found = trimmed_interval(one)
    assert found.low == pytest.approx(float(low), abs=1e-12)
    assert found.high == pytest.approx(float(high), abs=1e-12)
    assert student(0.975, freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), rel=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_trimmed_mean_deviation_and_p_value_are_scipys(count: int) -> None:
    values = drawn(count)
    assert trimmed(values)[0] == pytest.approx(float(stats.trim_mean(values, TRIM)), abs=1e-12)
    assert deviation(values) == pytest.approx(float(stats.tstd(values)), rel=1e-12)
    theirs = stats.ttest_1samp(values, 0.008, alternative="greater")
    excess, error = float(np.mean(values)) - 0.008, deviation(values) / math.sqrt(count)
    assert p_positive(excess, error, count - 1) == pytest.approx(float(theirs.pvalue), abs=1e-12)


def by_ranks(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's by its definition: the correlation of the ranks."""
    ranks = [stats.rankdata(each) - (len(each) + 1) / 2 for each in (one, other)]
    return float(ranks[0] @ ranks[1]) / math.sqrt(float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1]))


@pytest.mark.parametrize("count", [5, 40])
def test_the_rank_correlation_is_that_of_the_ranks(count: int) -> None:
    draw = np.random.default_rng(count)
    one = draw.integers(4, size=count).astype(float)  # with ties
    other = one + draw.normal(size=count)
    assert _rank_correlation(one, other) == pytest.approx(by_ranks(one, other), abs=1e-12)
    assert _rank_correlation(one, np.ones(count)) is None


# What is not believed of a measurement --------------------------------------------------------------------------------


def test_a_latency_below_the_roofline_is_impossible() -> None:
    ceilings = Ceilings(flops=1e12, bytes=1e11)
    floor = floor_us(PROBLEM, ceilings, cold=False)
    assert floor == pytest.approx(1e6 * PROBLEM.flops / 1e12 / MARGIN)
    fault = too_fast(PROBLEM, 0.9 * floor, ceilings, cold=False)
    assert (fault.verdict, fault.code) == (Verdict.IMPOSSIBLE, "measure.floor")
    assert too_fast(PROBLEM, 1.1 * floor, ceilings, cold=False) is None
    assert too_fast(PROBLEM, 1e-9, None, cold=False) is None


def test_only_a_cold_forward_must_move_its_bytes() -> None:
    slow_memory = Ceilings(flops=1e15, bytes=1e6)
    assert floor_us(PROBLEM, slow_memory, cold=True) > 1000 * floor_us(PROBLEM, slow_memory, cold=False)


def test_an_impossible_race_is_a_reject() -> None:
    found = race(1e-3, ceilings=Ceilings(flops=1e12, bytes=1e11))
    assert isinstance(found, Fault)
    assert found.verdict == Verdict.IMPOSSIBLE


@pytest.mark.parametrize(("alone_us", "refused"), [((), False), ((20.0,), False), ((100 / 260,), True)])
def test_beside_a_baseline_that_other_work_holds_up_no_figure_is_found(
    alone_us: tuple[float, ...], refused: bool
) -> None:
    """It once took 50 us by itself and 13 ms in the race: a variant had 924x there."""
    found = race(77, None, baselines_us=alone_us)
    assert isinstance(found, Fault) == refused
    if isinstance(found, Fault):
        assert (found.verdict, found.code) == (Verdict.DISTURBED, "measure.disturbed")
        assert found.detail.endswith("us in the race and 0.4 us by itself before: it was held up")


class TwoClocks(FakeArm):
    """An arm with a clock of the device beside the host's."""

    def __init__(self, *readings: Clocks | None) -> None:
        self._left = list(readings)
        self.asked: list[float] = []

    def clocks(self, seconds: float) -> Clocks | None:
        self.asked.append(seconds)
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


def test_work_that_is_hidden_from_the_devices_clock_is_found() -> None:
    arm = TwoClocks(Clocks(host=1e-3, device=5e-4))
    fault = clocks_disagree(arm)
    assert (fault.verdict, fault.code) == (Verdict.IMPOSSIBLE, "measure.clocks")
    assert arm.asked == sorted(set(arm.asked))  # each try is longer than the one before


def test_clocks_that_agree_once_are_believed() -> None:
    assert clocks_disagree(TwoClocks(Clocks(1e-3, 5e-4), Clocks(1e-3, 0.98e-3))) is None
    assert clocks_disagree(TwoClocks(Clocks(15e-6, 6e-6))) is None  # within the resolution
    assert clocks_disagree(TwoClocks(None)) is None
