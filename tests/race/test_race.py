"""Blocks, their statistics, the rules that end a race, and whole races on the fake device, whose truth is known."""

import itertools
import math
import random
import time
from collections.abc import Callable
from statistics import median

import pytest

from autotuner.race import calibrate, rules
from autotuner.race.arms import ArmError
from autotuner.race.blocks import MOST_DISCARDED, UNSEEN, Bounded, Throttled, take_clean
from autotuner.race.calibrate import time_baselines
from autotuner.race.heat import heat
from autotuner.race.race import Incumbent, measure
from autotuner.race.statistics import median_interval, trimmed_bound, trimmed_interval
from autotuner.values.conditions import TIE
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact, Heat, Measurement, Stop
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.fake_line import Deviations, FakeArm, FakeTrack
from tests.helpers.racing import Sampler, fakes, race, raced, track


def exact(values: list[float]) -> Bounded:
    """Log-ratios of samples that nothing held up."""
    return Bounded(values, values, values)


def noisy(us: float, noise: float, draw: random.Random, spikes: float = 0.02) -> Callable[[], float]:
    """Seconds of a known median with relative noise and, now and then, a spike of half as much again."""
    return lambda: us * 1e-6 * math.exp(draw.gauss(0.0, noise)) * (1 + 0.5 * (draw.random() < spikes))


def gains_of(ratio: float, count: int, draw: random.Random, noise: float = 0.005) -> list[float]:
    """ln(t_variant / t_incumbent) of `count` blocks in ordinary noise, where `ratio` is true."""
    one, other = noisy(ratio, noise, draw), noisy(1, noise, draw)
    return [math.log(one() / other()) for _ in range(count)]


# Statistics ---------------------------------------------------------------------------------------------------------


def test_the_interval_covers_the_median_of_a_skewed_distribution() -> None:
    draw = random.Random(1)
    truth = math.log(2)
    hits = 0
    for _ in range(2000):
        interval = median_interval([draw.expovariate(1.0) for _ in range(15)])
        hits += interval.low <= truth <= interval.high
    assert hits / 2000 >= 0.94


@pytest.mark.parametrize("count", [12, 20])
def test_intervals_of_a_mean_cover_it_as_often_as_they_say(count: int) -> None:
    draw = random.Random(2)
    hits = 0
    for _ in range(2000):
        interval = trimmed_interval([draw.gauss(3.0, 1.0) for _ in range(count)])
        hits += interval.low <= 3.0 <= interval.high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


# The rules ----------------------------------------------------------------------------------------------------------


def ended(ratio: float, seed: int) -> tuple[Stop, int]:
    """How a race against an incumbent ends, and after how many blocks; both are 20 % faster than the baseline."""
    draw = random.Random(seed)
    baseline = [noisy(1.25, 0.005, draw)() for _ in range(60)]
    incumbent = [noisy(1, 0.005, draw)() for _ in range(60)]
    variant = [noisy(ratio, 0.005, draw)() for _ in range(60)]
    for count in range(1, 61):
        ratios = [math.log(one / base) for one, base in zip(variant[:count], baseline[:count], strict=True)]
        gains = [math.log(one / other) for one, other in zip(variant[:count], incumbent[:count], strict=True)]
        stop = rules.decide([ratios], exact(gains), TIE, 12, 60, count)
        if stop is not None:
            return stop, count
    raise AssertionError("60 blocks are the limit")


def test_an_equal_arm_is_hardly_ever_lost() -> None:
    ends = [ended(1.0, seed)[0] for seed in range(500)]
    assert sum(stop.gives_up for stop in ends) / 500 <= 0.02 + 0.01
    assert ends.count(Stop.PROMOTED) <= 2


def test_what_is_5_percent_slower_is_removed_soon() -> None:
    ends = [ended(1.05, seed) for seed in range(300)]
    assert sum(stop == Stop.SLOWER for stop, _ in ends) / 300 >= 0.98
    assert median(count for _, count in ends) == rules.FIRST_LOOK


def test_what_is_2_percent_faster_is_promoted() -> None:
    ends = [ended(1 / 1.02, seed) for seed in range(200)]
    assert sum(end == (Stop.PROMOTED, rules.PROMOTION_BLOCKS) for end in ends) / 200 >= 0.98


def test_what_is_far_faster_is_promoted_soon() -> None:
    """And one that leads by just as much as that asks for hardly ever is."""
    ends = [ended(1 / 1.3, seed) for seed in range(200)]
    assert sum(end == (Stop.PROMOTED, rules.EARLY_BLOCKS) for end in ends) / 200 >= 0.98
    draw = random.Random(5)
    early = [rules.promoted_early(gains_of(1 / 1.25, rules.EARLY_BLOCKS, draw)) for _ in range(2000)]
    assert sum(early) / 2000 <= rules.EARLY_ALPHA + 0.005


def test_looking_often_is_paid_for() -> None:
    """Without a share of the error for each look an equal arm is lost far more often: the bound above can fail."""
    draw, lost = random.Random(3), 0
    for _ in range(300):
        gains = gains_of(1.0, 60, draw)
        lost += any(trimmed_bound(gains[:count], 0.02) > 0 for count in range(rules.FIRST_LOOK, 61))
    assert lost / 300 > 0.08


@pytest.mark.parametrize("count", [rules.FIRST_LOOK, 15, rules.PROMOTION_BLOCKS - 1])
def test_time_that_is_up_promotes_a_tie_no_more_often(count: int) -> None:
    """Of a candidate that is faster by just the tie band."""
    draw = random.Random(count)
    ends = [rules.out_of_time(exact(gains_of(1 / (1 + TIE), count, draw)), TIE) for _ in range(1000)]
    assert ends.count(Stop.PROMOTED) / 1000 <= rules.PROMOTION_ALPHA + 0.015


# Blocks -------------------------------------------------------------------------------------------------------------


def test_every_arm_runs_once_a_block_and_in_any_order() -> None:
    order: list[str] = []

    def arm(name: str) -> Callable[[], float]:
        def sample() -> float:
            order.append(name)
            return 1e-4

        return sample

    blocks = raced([arm("a"), arm("b"), arm("c")], 120, seed=7)
    assert len(blocks) == 120
    turns = [tuple(order[start : start + 3]) for start in range(0, 360, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert all(8 <= turns.count(turn) <= 35 for turn in itertools.permutations("abc"))


def test_drift_shared_by_all_arms_leaves_the_ratio_alone() -> None:
    """A machine that slows down 2.7 times during the blocks moves all arms of a block alike."""
    clock = itertools.count()

    def arm(us: float) -> Callable[[], float]:
        return lambda: us * 1e-6 * (1 + 1.7 * next(clock) / 40)

    blocks = raced([arm(100), arm(80)], 20)
    assert median(blocks.log_ratios(1, 0).mid) == pytest.approx(math.log(0.8), abs=0.05)


def test_equal_arms_name_no_winner() -> None:
    """A/A: the interval of two arms of one truth covers 0 in nearly every race."""
    draw, wrong = random.Random(9), 0
    for seed in range(200):
        blocks = raced([noisy(100, 0.01, draw), noisy(100, 0.01, draw)], 40, seed)
        interval = median_interval(blocks.log_ratios(1, 0).mid)
        wrong += interval.high < -TIE or interval.low > TIE
    assert wrong <= 4


def test_a_block_in_which_the_device_throttled_is_taken_again() -> None:
    clock = itertools.count(1)
    blocks = raced([lambda: next(clock), lambda: 1.0], 3, on=track([False, True, True, False]))
    assert blocks.seconds[0][0] == [1, 4, 5]
    assert blocks.discarded == 2


def test_too_much_throttling_says_nothing_of_the_variant() -> None:
    with pytest.raises(Throttled, match="hot") as raised:
        raced([lambda: 1.0, lambda: 1.0], 3, on=track([True] * (MOST_DISCARDED + 1)))
    assert (raised.value.fault.verdict, raised.value.fault.code) == (Verdict.DISTURBED, "measure.throttled")


# Races on the fake device -------------------------------------------------------------------------------------------


def measured(found: Measurement | Fault) -> Measurement:
    assert isinstance(found, Measurement), found
    return found


def test_a_race_has_the_times_of_all_three_arms() -> None:
    found = measured(race(77))
    (timing,) = found.timings
    assert (found.stopped, found.promoted, found.censored) == (Stop.PROMOTED, True, False)
    assert len(timing.variant_us) == len(timing.baseline_us) == len(timing.incumbent_us) == rules.PROMOTION_BLOCKS
    for times, us in ((timing.variant_us, 77), (timing.baseline_us, 100), (timing.incumbent_us, 80)):
        assert median(times) == pytest.approx(us, rel=0.005)
    assert found.objective == pytest.approx(math.log(0.77), abs=0.003)
    assert found.speedup == pytest.approx(1 / 0.77, rel=0.003)
    assert found.gain is not None


@pytest.mark.parametrize("error", [ImportError("no room"), FileNotFoundError("gone")])
def test_an_incumbent_that_cannot_be_loaded_says_nothing_of_the_variant(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    made = FakeTrack.variant

    def lost(self: FakeTrack, artifact: Artifact, again: bool = False) -> FakeArm:
        if again:
            raise error
        return made(self, artifact)

    monkeypatch.setattr(FakeTrack, "variant", lost)
    found = race(77)
    assert isinstance(found, Fault)
    assert (found.verdict, found.code) == (Verdict.INFRA_ERROR, "measure.incumbent")
    assert not found.verdict.judges


@pytest.mark.parametrize(("us", "stop"), [(72, Stop.PROMOTED), (80, Stop.LATE)])
def test_a_slow_race_promotes_too(us: float, stop: Stop) -> None:
    """No block is over before the race's share of the run's time is."""
    found = measured(race(us, seconds=1e-6))
    assert (found.stopped, found.promoted) == (stop, stop == Stop.PROMOTED)
    assert 3 <= len(found.timings[0].variant_us) <= rules.FIRST_LOOK


@pytest.mark.parametrize(
    ("us", "stop", "blocks"), [(400, Stop.HOPELESS, 1), (200, Stop.HOPELESS, 2), (90, Stop.SLOWER, rules.FIRST_LOOK)]
)
def test_a_slow_variant_is_given_up(us: float, stop: Stop, blocks: int) -> None:
    found = measured(race(us))
    assert (found.stopped, len(found.timings[0].variant_us)) == (stop, blocks)
    assert found.censored
    assert not found.promoted


def test_what_is_given_up_is_estimated_through_the_incumbent() -> None:
    """The baseline has taken 100 us where the incumbent's ratio was found, and takes 89 us in these few blocks."""
    known = math.log(0.9 * 80 / 100)
    measured = race(96, ratios=(known,))
    assert isinstance(measured, Measurement)
    assert measured.censored
    (timing,) = measured.timings
    assert measured.objective == timing.log_ratio.mid == pytest.approx(known + math.log(96 / 80), abs=0.01)
    assert timing.log_ratio.low <= measured.objective <= timing.log_ratio.high


def test_throttling_costs_blocks_and_does_not_move_the_ratio() -> None:
    found = measured(race(77, deviations=Deviations(noise=0.003, throttling=0.06)))
    assert found.discarded > 0
    assert found.objective == pytest.approx(math.log(0.77), abs=0.005)


def test_a_heat_leaves_out_what_cannot_be_launched() -> None:
    backend, artifacts, conditions = fakes([80, 90, 70], None)
    (only,) = backend.tracks(conditions)
    assert isinstance(only, FakeTrack)
    launch, fault = only.variant, Fault(verdict=Verdict.LAUNCH_FAILED, code="measure.launch", detail="no")

    def variant(artifact: Artifact, again: bool = False) -> FakeArm:
        if artifact is artifacts[1]:
            raise ArmError(fault)
        return launch(artifact, again)

    only.variant = variant  # type: ignore[method-assign]
    found = heat([only], artifacts, 8, conditions, lambda _: None)
    assert found.entrants == tuple(artifact.digest for artifact in artifacts)
    assert found.faults == {1: fault}
    assert [len(problems) for problems in found.us] == [1, 0, 1]
    assert median(found.us[2][0]) == pytest.approx(70, rel=0.02)
    assert len(found.baseline_us[0]) == 8


def test_a_heat_of_one_problem_shares_its_blocks_out_to_several_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each load draws what it differs by, and is rechecked; where the first is slow it has all blocks, and where it
    fails there are no more. Before samples count there are others, after each pause."""
    monkeypatch.setattr(FakeTrack, "has_room", True)
    backend, artifacts, conditions = fakes([80], Deviations(process=0.02))
    said: list[str] = []

    def run() -> Heat:
        return heat(backend.tracks(conditions), artifacts, 24, conditions, said.append, several=True)

    found = run()
    for us in (found.us[0][0], found.baseline_us[0]):
        assert len(us) == 24
        assert [len({*us[start : start + 6]}) for start in range(0, 24, 6)] == [1] * 4
        assert len({*us}) == 4
    assert sum(step.startswith("G7") for step in said) == 4
    fault = Fault(verdict=Verdict.INCORRECT, code="G7.recheck", detail="no")
    for sound, blocks in ((0, 6), (1, 24)):
        rechecks = iter([*[None] * sound, fault, None, None, None])
        with monkeypatch.context() as patched:
            patched.setattr(FakeArm, "recheck", lambda _, rechecks=rechecks: next(rechecks))
            failed = run()
        assert failed.faults == {0: fault}
        assert len(failed.baseline_us[0]) == blocks
    with monkeypatch.context() as patched:
        patched.setattr(FakeTrack, "settles_s", 0.01)
        began = time.monotonic()
        assert len(run().baseline_us[0]) == 24
        assert time.monotonic() - began >= 2 * 0.01
    monkeypatch.setattr("autotuner.race.heat.LOAD_S", -1.0)
    assert len({*run().baseline_us[0]}) == 1


@pytest.mark.parametrize("every_s", [0.0, 3600.0])
def test_a_race_or_a_heat_is_announced_as_it_goes_on(every_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its deadline is one for a sample; short races say nothing but that they begin."""
    monkeypatch.setattr("autotuner.race.blocks.EVERY_S", every_s)
    backend, artifacts, conditions = fakes([77, 80], None)
    said: list[str] = []
    tracks, again = backend.tracks(conditions), every_s == 0
    found = measured(measure(tracks, artifacts[0], Incumbent(artifacts[1]), conditions, said.append))
    samples = 3 * len(found.timings[0].variant_us)
    assert said.count(f"measuring {tracks[0].problem}") == 1 + again * samples
    assert said.count("loading") == 1 + again * 3
    said.clear()
    taken = 24 + heat(tracks, artifacts, 24, conditions, said.append).discarded
    assert said.count("racing") == 1 + again * 3 * taken


# Samples that something holds up --------------------------------------------------------------------------------------


def preempted(us: float, draw: random.Random, share: float, wait: float = 1.0) -> Callable[[], tuple[float, float]]:
    """Seconds of a known median, and what was waited of them: a share of the samples waits, up to `wait` as long."""

    def sample() -> tuple[float, float]:
        own = us * 1e-6 * math.exp(draw.gauss(0.0, 0.005))
        waited = own * wait * draw.random() if draw.random() < share else 0.0
        return own + waited, waited

    return sample


def test_blocks_that_were_held_up_are_left_out_where_half_are_left() -> None:
    draw = random.Random(3)
    blocks = raced([preempted(100, draw, 0.1), preempted(80, draw, 0.1)], 0)
    take_clean(blocks, 24)
    assert 24 < len(blocks) <= 48
    assert (len(blocks.kept), blocks.held_up) == (24, 0.0)
    found = blocks.log_ratios(1, 0)
    assert found.low == found.mid == found.high
    assert found.interval.mid == pytest.approx(math.log(0.8), abs=0.005)


@pytest.mark.parametrize("on_one_side", [False, True])
def test_where_too_few_are_left_the_interval_has_the_truth_and_all_that_waiting_may_have_done(
    on_one_side: bool,
) -> None:
    """Also where the baseline alone is held up, which makes the variant look faster."""
    covered, off = 0, []
    for seed in range(40):
        draw = random.Random(seed)
        blocks = raced([preempted(100, draw, 0.9), preempted(80, draw, 0.0 if on_one_side else 0.9)], 0, seed)
        take_clean(blocks, 24)
        assert len(blocks) == 48
        assert blocks.held_up > 0.5
        found = blocks.estimate(1, 0)
        covered += found.low <= math.log(0.8) <= found.high
        assert found.low <= found.mid <= found.high
        off.append(found.mid - math.log(0.8))
    assert covered >= 36
    assert abs(median(off)) < 0.2


def test_nobody_is_promoted_or_given_up_by_what_the_other_one_waited() -> None:
    """Equals: one of them is held up all the time."""
    for slow in (0, 1):
        draw = random.Random(slow)
        shares = [0.0, 0.0]
        shares[slow] = 1.0
        arms = [preempted(100, draw, 0.0), preempted(80, draw, shares[0]), preempted(80, draw, shares[1])]
        gains = raced(arms, rules.PROMOTION_BLOCKS).gains(1, 2, "mean")
        assert not rules.slower(gains.low)
        assert not rules.promoted(gains.high, TIE)


def test_how_long_the_baseline_waited_tells_nothing_of_two_variants_unless_the_largest_ratio_counts() -> None:
    draw = random.Random(1)
    blocks = raced([preempted(100, draw, 1.0), preempted(90, draw, 0.0), preempted(80, draw, 0.0)], rules.FIRST_LOOK)
    for objective in ("mean", (3.0,)):
        gains = blocks.gains(1, 2, objective)
        assert gains.low == gains.mid == gains.high
        assert rules.slower(gains.low)
    of_largest = blocks.gains(1, 2, "max")
    assert not rules.slower(of_largest.low)


def test_a_shared_device_is_timed_after_some_tries_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, left = itertools.cycle([100e-6, 300e-6]), [3]
    shared = track()
    monkeypatch.setattr(shared, "shared", lambda: "in turns" if left[0] and left[0] > 0 else None)
    blocks = raced([lambda: next(turns), lambda: 80e-6], 6, on=shared)
    assert blocks.discarded == MOST_DISCARDED
    assert len(blocks) == 6
    found = blocks.log_ratios(1, 0).interval
    assert found.low <= math.log(0.8) <= found.high
    left[0] = 0
    assert raced([lambda: 100e-6, lambda: 80e-6], 6, on=shared).held_up == 0


def test_where_samples_are_taken_again_too_often_the_interval_has_what_no_sample_shows() -> None:
    for share, unseen in ((0.1, 0.0), (0.9, UNSEEN)):
        draw, blocks = random.Random(1), raced([lambda: 100e-6, lambda: 80e-6], 0)
        for _ in range(40):
            Sampler.retaken = draw.random() < share
            blocks.take()
        Sampler.retaken = False
        assert blocks.unseen == unseen


# Calibration --------------------------------------------------------------------------------------------------------


def test_a_baseline_that_cannot_be_launched_is_left_out_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some say so when they are made ready, and some in a sample."""
    of, made = track(), FakeTrack.baseline

    def baseline(self: FakeTrack, name: str) -> FakeArm:
        if name == "flash":
            raise RuntimeError("CUDA error: invalid configuration argument\nand pages of advice")
        return Failing() if name == "efficient" else made(self, name)  # type: ignore[return-value]

    monkeypatch.setattr(FakeTrack, "baseline", baseline)
    timed, refused, _ = time_baselines(of, ["flash", "efficient", "math"], rounds=3)
    assert [each.backend for each in timed] == ["math"]
    assert refused == {"flash": "CUDA error: invalid configuration argument", "efficient": "not at this size"}
    with pytest.raises(InfrastructureError, match="efficient: not at this size"):
        time_baselines(of, ["flash", "efficient"], rounds=3)


@pytest.mark.parametrize(
    ("every", "waited", "pinned", "rivals", "rounds"),
    [(3, 150e-6, "flash", [], 9), (3, 260e-6, "flash", ["math"], 36), (1000, 260e-6, "math", ["flash"], 36)],
)
def test_a_baseline_that_is_held_up_is_timed_again_or_told(
    monkeypatch: pytest.MonkeyPatch, every: int, waited: float, pinned: str, rivals: list[str], rounds: int
) -> None:
    """The threads of `math` waited for so long at most, all together; `flash`, which takes 100 us, is left alone in one
    sample of `every`."""
    counts = {"flash": itertools.count(), "math": itertools.count()}

    class HeldUp:
        waited, retaken = 0.0, False

        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self) -> float:
            is_alone = next(counts[self.name]) % every == every - 1 and self.name == "flash"
            self.waited = 0.0 if is_alone else 420e-6 if self.name == "flash" else waited
            return 100e-6 if is_alone else 520e-6 if self.name == "flash" else 270e-6

    monkeypatch.setattr(FakeTrack, "baseline", lambda _, name: HeldUp(name))
    timed, _, found = time_baselines(track(), ["flash", "math"], rounds=9)
    fastest = min(timed, key=lambda each: each.median_us).backend
    assert (fastest, found, next(counts["math"])) == (pinned, rivals, rounds)


@pytest.mark.parametrize(("all_s", "rounds"), [(20.0, [9, 3]), (0.0, [3, 3])])
def test_what_cannot_be_the_fastest_and_what_takes_long_is_timed_few_times(
    monkeypatch: pytest.MonkeyPatch, all_s: float, rounds: list[int]
) -> None:
    each_s, counts = {"flash": 100e-6, "math": 300e-6}, {"flash": itertools.count(), "math": itertools.count()}

    class Clean:
        waited, retaken = 0.0, False

        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self) -> float:
            next(counts[self.name])
            return each_s[self.name]

    monkeypatch.setattr(FakeTrack, "baseline", lambda _, name: Clean(name))
    monkeypatch.setattr(calibrate, "ALL_S", all_s)
    timed, _, _ = time_baselines(track(), ["flash", "math"], rounds=9)
    assert [each.median_us for each in timed] == [pytest.approx(1e6 * seconds) for seconds in each_s.values()]
    assert [next(count) for count in counts.values()] == rounds


class Failing:
    """An arm whose second sample cannot be launched."""

    waited, retaken, count = 0.0, False, 0

    def __call__(self) -> float:
        self.count += 1
        if self.count > 1:
            raise RuntimeError("not at this size")
        return 1e-9
