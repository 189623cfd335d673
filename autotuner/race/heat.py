"""Heats: variants and the baseline through a fixed number of blocks in one process, or the baseline alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import median

from autotuner.race.arms import Arm, ArmError, Tracks, VariantArm
from autotuner.race.blocks import MOST_DISCARDED, Blocks, LongStep, take_clean
from autotuner.race.plausible import clocks_disagree, too_fast
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Heat, Say
from autotuner.values.verdict import Fault


def heat(tracks: Tracks, artifacts: Sequence[Artifact], count: int, conditions: Conditions, say: Say) -> Heat:
    """`count` interleaved blocks of the baseline and all artifacts; one that is there twice is loaded twice. Without
    artifacts no variant is loaded in this process.

    A variant that fails is left out, with its fault. Where something holds samples up, up to twice as many blocks are
    taken, and those in which nothing was held up count if they are half of all. Raises Throttled.
    """
    draw = random.Random(conditions.seeds[0])
    arms, baselines, faults = _entered(tracks, artifacts, conditions, draw, say)
    step = LongStep(say, "racing")
    blocks = Blocks(tracks, [baselines, *arms.values()], draw.randrange(2**31), step, max(count, MOST_DISCARDED))
    take_clean(blocks, count)
    for place, entrant in arms.items():
        say(f"{codes.RECHECK} {artifacts[place].name}")
        fault = next((found for arm in entrant if (found := arm.recheck()) is not None), None)
        row = 1 + list(arms).index(place)
        for problem, (track, arm) in enumerate(zip(tracks, entrant, strict=True)):
            us = 1e6 * median(blocks.seconds_kept(row, problem))
            is_cold = conditions.cache == "cold"
            fault = fault or too_fast(track.problem, us, conditions.ceilings, is_cold) or clocks_disagree(arm)
        if fault is not None:
            faults[place] = fault
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
        faults=faults,
        discarded=blocks.discarded,
    )


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


def _entered(
    tracks: Tracks, artifacts: Sequence[Artifact], conditions: Conditions, draw: random.Random, say: Say
) -> tuple[dict[int, list[VariantArm]], list[Arm], dict[int, Fault]]:
    """The arms of those that can be launched, by place, one a problem; the baselines; and the faults of the others.

    All are loaded in random order, the baselines too: where an arm's memory lies can make it some tenths of a per cent
    faster or slower, and must not be the same in every process.
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
    return arms, baselines, faults
