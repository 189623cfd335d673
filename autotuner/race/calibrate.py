"""The op's baselines on the problems, before the first trial: variants are compared with the fastest of each."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotuner.race.arms import Arm, Track
from autotuner.race.blocks import without
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import BackendTiming


def time_baselines(track: Track, baselines: Sequence[str], rounds: int) -> list[BackendTiming]:
    """Every baseline that takes the track's problem, interleaved: what disturbs one disturbs the others.

    Raises InfrastructureError when none takes it, or the device has no memory left for one: a slower one would be
    pinned.
    """
    arms: dict[str, Arm] = {}
    for name in baselines:
        try:
            arms[name] = track.baseline(name)
        except RuntimeError:  # this baseline does not take the problem
            continue
    if not arms:
        raise InfrastructureError(f"no baseline of this torch takes {track.problem}")
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            samples[name].append((arm(), arm.waited))
    return [
        BackendTiming(backend=name, problem=track.problem, median_us=1e6 * usual(taken))
        for name, taken in samples.items()
    ]


def usual(samples: Sequence[tuple[float, float]]) -> float:
    """The median of those that were not held up where they are half of all, else of all without their waiting."""
    clean = [seconds for seconds, waited in samples if without(seconds, waited) == seconds]
    return median(clean if 2 * len(clean) >= len(samples) else [without(*each) for each in samples])


def fastest(timings: Sequence[BackendTiming]) -> str:
    """The baseline to pin."""
    return min(timings, key=lambda timing: timing.median_us).backend
