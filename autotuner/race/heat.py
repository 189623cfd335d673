"""Heats: variants and the baseline through a fixed number of blocks in one process, or the baseline alone."""

import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from autotuner.race.arms import Arm, ArmError, Tracks, VariantArm
from autotuner.race.blocks import MOST_DISCARDED, Blocks, LongStep, take_clean
from autotuner.race.plausible import clocks_disagree, too_fast
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Heat, Say
from autotuner.values.verdict import Fault

LOADS = 4
"""A short forward takes more or less time as its tensors and its graph lie: from load to load of a process as from
process to process, and a load is made in a fraction of the time (benchmarks/timing/heat_seconds)."""
LOAD_S = 0.25
"""Where the blocks of one load take longer, it has the rest of them too."""


class _Load(NamedTuple):
    """All arms, loaded in this process."""

    tracks: Tracks
    arms: dict[int, list[VariantArm]]
    """Of those that can be launched, by place, one a problem."""
    baselines: list[Arm]
    faults: dict[int, Fault]
    """Of the others."""

    @property
    def rows(self) -> list[Sequence[Arm]]:
        """As `Blocks` takes them."""
        return [self.baselines, *self.arms.values()]


def heat(
    tracks: Tracks, artifacts: Sequence[Artifact], count: int, conditions: Conditions, say: Say, several: bool = False
) -> Heat:
    """`count` interleaved blocks of the baseline and all artifacts; one that is there twice is loaded twice. Without
    artifacts no variant is loaded in this process. `several`: up to LOADS loads of all arms share the blocks, where the
    device has another track of the one problem.

    A variant that fails is left out, with its fault; no further load follows. Where something holds samples up, up to
    twice as many blocks are taken, and those in which nothing was held up count if they are half of all. Raises
    Throttled.
    """
    draw = random.Random(conditions.seeds[0])
    others = [tracks[0].another() for _ in range(LOADS - 1 if several and len(tracks) == 1 else 0)]
    more = [[other] for other in others if other is not None]
    held = [_loaded(tracks, artifacts, conditions, draw, say)]  # all stay: what comes later lies elsewhere
    arms, faults, step = held[0].arms, held[0].faults, LongStep(say, "racing")
    blocks = Blocks(tracks, held[0].rows, draw.randrange(2**31), step, max(count, MOST_DISCARDED))
    has_all = _raced(blocks, count // (1 + len(more)), count)
    faults |= _found(held[0], blocks, artifacts, conditions, say, has_all)
    for other in more:
        if not (has_all or faults):
            held.append(_loaded(other, artifacts, conditions, draw, say))
            faults |= held[-1].faults
    if len(held) > 1 and not faults:
        _race_on(blocks, held, count)
        for load in held[1:]:
            faults |= _found(load, blocks, artifacts, conditions, say, load is held[-1])
    baseline_us, *micros = [_micros(blocks.seconds_kept, arm, len(tracks)) for arm in range(len(arms) + 1)]
    baseline_lost, *lost = [_micros(blocks.waited_kept, arm, len(tracks)) for arm in range(len(arms) + 1)]
    rows, lost_rows = (dict(zip(arms, each, strict=True)) for each in (micros, lost))
    sound = [place if place not in faults else None for place in range(len(artifacts))]
    return Heat(
        entrants=tuple(artifact.digest for artifact in artifacts),
        baselines=conditions.baselines,
        us=tuple(() if place is None else rows[place] for place in sound),
        baseline_us=baseline_us,
        waited_us=tuple(() if place is None else lost_rows[place] for place in sound) if blocks.held_up else (),
        baseline_waited_us=baseline_lost if blocks.held_up else (),
        held_up=blocks.held_up,
        unseen=blocks.unseen,
        faults=faults,
        discarded=blocks.discarded,
    )


def _raced(blocks: Blocks, share: int, count: int) -> bool:
    """Takes the first load's share of the blocks, and all `count` where that takes long; whether it took all."""
    blocks.settle()
    began = time.monotonic()
    take_clean(blocks, share)
    if share == count:
        return True
    if time.monotonic() - began <= LOAD_S:
        return False
    take_clean(blocks, count)
    return True


def _race_on(blocks: Blocks, held: Sequence[_Load], count: int) -> None:
    """The blocks of the other loads, without a pause: after one a device has to settle."""
    for place, load in enumerate(held[1:], 2):
        blocks.go_on_with(load.tracks, load.rows)
        if place == 2:
            blocks.settle()
        take_clean(blocks, place * count // len(held))


def _found(
    load: _Load, blocks: Blocks, artifacts: Sequence[Artifact], conditions: Conditions, say: Say, is_last: bool
) -> dict[int, Fault]:
    """The faults that show after the blocks of a load. After the last one it is also asked whether a variant is faster
    than any can be."""
    faults: dict[int, Fault] = {}
    for row, (place, entrant) in enumerate(load.arms.items(), 1):
        say(f"{codes.RECHECK} {artifacts[place].name}")
        fault = next((found for arm in entrant if (found := arm.recheck()) is not None), None)
        for problem, (track, arm) in enumerate(zip(load.tracks, entrant, strict=True) if is_last else ()):
            us = 1e6 * median(blocks.seconds_kept(row, problem))
            is_cold = conditions.cache == "cold"
            fault = fault or too_fast(track.problem, us, conditions.ceilings, is_cold) or clocks_disagree(arm)
        if fault is not None:
            faults[place] = fault
    return faults


def _micros(of: Callable[[int, int], list[float]], arm: int, problems: int) -> tuple[tuple[float, ...], ...]:
    """Microseconds of an arm; [problem][block]."""
    return tuple(tuple(1e6 * seconds for seconds in of(arm, problem)) for problem in range(problems))


def baseline_arms(tracks: Tracks, conditions: Conditions, step: LongStep) -> list[Arm]:
    """The arms of the pinned baselines, one a problem."""
    arms: list[Arm] = []
    for track, name in zip(tracks, conditions.baselines, strict=True):
        step.go_on()
        arms.append(track.baseline(name))
    return arms


def variant_arms(tracks: Tracks, artifact: Artifact, step: LongStep, again: bool = False) -> list[VariantArm]:
    """The arms of a variant, one a problem; `again`: from a second load of its library. Raises ArmError."""
    arms: list[VariantArm] = []
    for track in tracks:
        step.go_on()
        arms.append(track.variant(artifact, again))
    return arms


def _loaded(
    tracks: Tracks, artifacts: Sequence[Artifact], conditions: Conditions, draw: random.Random, say: Say
) -> _Load:
    """All are loaded in random order, the baselines too: where an arm's memory lies can make it some tenths of a per
    cent faster or slower, and must not be the same in every process.
    """
    arms: dict[int, list[VariantArm]] = {}
    baselines: list[Arm] = []
    faults: dict[int, Fault] = {}
    loaded: set[str] = set()
    for place in draw.sample(range(-1, len(artifacts)), len(artifacts) + 1):
        if place < 0:
            baselines = baseline_arms(tracks, conditions, LongStep(say, "loading the baselines"))
            continue
        artifact = artifacts[place]
        step = LongStep(say, f"loading {artifact.name}")
        try:
            arms[place] = variant_arms(tracks, artifact, step, again=artifact.digest in loaded)
        except ArmError as error:
            faults[place] = error.fault
        loaded.add(artifact.digest)
    return _Load(tracks, dict(sorted(arms.items())), baselines, faults)
