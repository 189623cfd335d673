"""Heats: variants and the baseline through a fixed number of blocks in one process, or the baseline alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from autotuner.race.arms import Arm, ArmError, Tracks, VariantArm
from autotuner.race.blocks import MOST_DISCARDED, Blocks, LongStep
from autotuner.race.thermometer import take_calm, thermometer
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Heat, Say
from autotuner.values.verdict import Fault


def heat(tracks: Tracks, artifacts: Sequence[Artifact], count: int, conditions: Conditions, say: Say) -> Heat:
    """`count` interleaved blocks of the baseline and all artifacts; one that is there twice is loaded twice. Without
    artifacts no variant is loaded in this process.

    A variant that fails is left out, with its fault. There are fewer blocks where something disturbed the rest. Raises
    Throttled and Drifted.
    """
    draw = random.Random(conditions.seeds[0])
    arms, baselines, faults = _entered(tracks, artifacts, conditions, draw, say)
    step = LongStep(say, "racing")
    blocks = Blocks(tracks, [baselines, *arms.values()], draw.randrange(2**31), step, max(count, MOST_DISCARDED))
    take_calm(blocks, count, thermometer(conditions, tracks[0], alone=not artifacts))
    for place, entrant in arms.items():
        say(f"{codes.RECHECK} {artifacts[place].name}")
        fault = next((found for arm in entrant if (found := arm.recheck()) is not None), None)
        if fault is not None:
            faults[place] = fault
    micros = [tuple(tuple(1e6 * s for s in problem) for problem in arm) for arm in blocks.seconds]
    rows = dict(zip(arms, micros[1:], strict=True))
    return Heat(
        entrants=tuple(artifact.digest for artifact in artifacts),
        baselines=conditions.baselines,
        us=tuple(rows[place] if place not in faults else () for place in range(len(artifacts))),
        baseline_us=micros[0],
        faults=faults,
        discarded=blocks.discarded,
    )


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
