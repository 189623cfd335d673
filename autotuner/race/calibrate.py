"""The op's baselines on the problems, before the first trial: variants are compared with the fastest of each."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotuner.race.arms import Arm, ArmError, Track
from autotuner.race.blocks import without
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import BackendTiming

LONGEST = 160
"""Characters of what a baseline says, at most."""


def time_baselines(track: Track, baselines: Sequence[str], rounds: int) -> tuple[list[BackendTiming], dict[str, str]]:
    """Every baseline that takes the track's problem, interleaved: what disturbs one disturbs the others. And in their
    own words why the others do not: some say so only when they are launched once more.

    Raises InfrastructureError when none takes it, or the device has no memory left for one: a slower one would be
    pinned.
    """
    arms: dict[str, Arm] = {}
    refused: dict[str, str] = {}
    for name in baselines:
        try:
            arms[name] = track.baseline(name)
        except (RuntimeError, ArmError) as error:
            refused[name] = _first_line(error)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in list(arms.items()):
            try:
                samples[name].append((arm(), arm.waited))
            except (RuntimeError, ArmError) as error:
                refused[name] = _first_line(error)
                del arms[name]
    if not arms:
        said = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise InfrastructureError(f"no baseline of this torch takes {track.problem}; {said}")
    timed = [BackendTiming(backend=name, problem=track.problem, median_us=1e6 * usual(samples[name])) for name in arms]
    return timed, refused


def _first_line(error: Exception) -> str:
    """What torch says first; its messages go on for pages."""
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST] if lines else type(error).__name__


def usual(samples: Sequence[tuple[float, float]]) -> float:
    """The median of those that were not held up where they are half of all, else of all without their waiting."""
    clean = [seconds for seconds, waited in samples if without(seconds, waited) == seconds]
    return median(clean if 2 * len(clean) >= len(samples) else [without(*each) for each in samples])


def fastest(timings: Sequence[BackendTiming]) -> str:
    """The baseline to pin."""
    return min(timings, key=lambda timing: timing.median_us).backend
