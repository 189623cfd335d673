"""The op's baselines on the problems, before the first trial: variants are compared with the fastest of each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from autotuner.race.arms import Arm, ArmError, Track
from autotuner.race.blocks import shortest_quarter, without
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import BackendTiming

Samples = Sequence[tuple[float, float]]
"""Seconds, and for how many of them, at most, it waited."""
LONGEST = 160
"""Characters of what a baseline says, at most."""


TELLS = 1.05
MOST, LONGEST_S = 4, 5.0
"""Where other work leaves open which is the fastest: so many times the rounds, within so many seconds."""


class Timed(NamedTuple):
    """The baselines on one problem."""

    timings: list[BackendTiming]
    refused: dict[str, str]
    """In their own words why the others do not take it."""
    rivals: list[str]
    """Those that may be faster than the one to pin: other work held them up too often for anyone to know."""

    @property
    def fastest(self) -> str:
        """The baseline to pin."""
        return min(self.timings, key=lambda timing: timing.median_us).backend


def time_baselines(track: Track, baselines: Sequence[str], rounds: int) -> Timed:
    """Every baseline that takes the track's problem, interleaved: what disturbs one disturbs the others. Some say that
    they do not take it only when they are launched once more.

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
    taken, late = 0, time.monotonic() + LONGEST_S
    while arms and (taken < rounds or (taken < MOST * rounds and time.monotonic() < late and rivals(samples))):
        taken += 1
        for name, arm in list(arms.items()):
            try:
                samples[name].append((arm(), arm.waited))
            except (RuntimeError, ArmError) as error:
                refused[name] = _first_line(error)
                del arms[name], samples[name]
        if track.shared() is not None:
            for each in samples.values():
                seconds, waited = each[-1]
                each[-1] = seconds, max(waited, seconds - min(each)[0])
    if not arms:
        said = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise InfrastructureError(f"no baseline of this torch takes {track.problem}; {said}")
    micros = {name: 1e6 * usual(each) for name, each in samples.items()}
    timed = [BackendTiming(backend=name, problem=track.problem, median_us=each) for name, each in micros.items()]
    return Timed(timed, refused, rivals(samples))


def rivals(samples: Mapping[str, Samples]) -> list[str]:
    """Those that would be faster than the fastest, and by more than TELLS, had they waited for as long as may be."""
    fastest = min(map(usual, samples.values()))
    return [name for name, each in samples.items() if TELLS * least(each) < fastest < usual(each)]


def _first_line(error: Exception) -> str:
    """What torch says first; its messages go on for pages."""
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST] if lines else type(error).__name__


def usual(samples: Samples) -> float:
    """The median of the samples that were not held up where they are half of all. Else the shortest quarter's end: what
    a sample waited is known as a bound alone, its threads' together, and to take it off makes slow ones fast."""
    clean = _clean(samples)
    return median(clean) if clean else shortest_quarter([seconds for seconds, _ in samples])


def least(samples: Samples) -> float:
    """The same if all that may have been waiting was; half of the samples say that it is no less."""
    return usual(samples) if _clean(samples) else median(without(*each) for each in samples)


def _clean(samples: Samples) -> list[float]:
    """Those that were not held up, where they are half of all."""
    found = [seconds for seconds, waited in samples if without(seconds, waited) == seconds]
    return found if 2 * len(found) >= len(samples) else []
