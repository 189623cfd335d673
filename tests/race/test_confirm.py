"""The finals' statistics, on heats whose truth is known."""

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest

from autotuner.race.confirm import FINAL_BLOCKS, FIRST, PROCESSES, Standing, confirm
from autotuner.race.statistics import holm
from autotuner.values.conditions import TIE
from autotuner.values.outcome import Heat
from autotuner.values.verdict import Fault, Verdict

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
def test_a_time_that_is_none_takes_its_entrant_out(us: float) -> None:
    entered = heats([70, 80])
    broken = ((us, *entered[1].us[0][0][1:]),)
    entered[1] = entered[1].model_copy(update={"us": (broken, entered[1].us[1])})
    standing = confirm(entered, TIE)
    assert [finalist.digest for finalist in standing.finalists] == ["b"]


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
