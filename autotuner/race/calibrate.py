"""The op's baselines on the problems, before the first trial: variants are compared with the fastest of each."""

import time
from collections.abc import Mapping, Sequence
from statistics import median, median_high

from autotuner.ops import ahead
from autotuner.race.arms import Arm, ArmError, Track
from autotuner.race.blocks import shortest_quarter, without
from autotuner.values.errors import InfrastructureError, first_line
from autotuner.values.outcome import BackendTiming
from autotuner.values.verdict import Fault, Verdict

LONGEST = 160
"""Characters of what a baseline says, at most."""
MOST, LONGEST_S = 4, 5.0
"""Where other work leaves open which is the fastest: so many times the rounds, within so many seconds."""
FEWEST, ALL_S = 3, 3.0
"""Rounds in any case, and seconds after which there are no more: beside other work a sample may take a second."""
SLOW = 2.0
"""After the fewest rounds one that took so many times as long as the fastest each time is timed no further."""
SLOWED = 8.0
"""How many times as long as by itself a baseline may take in a race. What has its CPUs in turns with other programs may
take hundreds of times as long where its threads wait for each other: anything looks fast beside that."""
TELLS = 1.05
"""By what factor one must be faster than another to be told from it."""


def time_baselines(
    track: Track, baselines: Sequence[str], rounds: int
) -> tuple[list[BackendTiming], dict[str, str], list[str]]:
    """Every baseline that takes the track's problem, interleaved: what disturbs one disturbs the others. And in their
    own words why the others do not: some say so only when they are launched once more. And the `rivals`, and who was
    late.

    Raises InfrastructureError when none takes it, or the device has no memory left for one: a slower one would be
    pinned.
    """
    arms: dict[str, Arm] = {}
    refused: dict[str, str] = {}
    for name in baselines:
        try:
            arms[name] = track.baseline(name)
        except (RuntimeError, ArmError) as error:
            refused[name] = first_line(error)[:LONGEST]
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    taken, began = 0, time.monotonic()
    while arms and (
        taken < FEWEST
        or (taken < rounds and time.monotonic() < began + ALL_S)
        or (taken < MOST * rounds and time.monotonic() < began + LONGEST_S and rivals(samples))
    ):
        taken += 1
        for name, arm in list(arms.items()):
            try:
                samples[name].append((arm(), arm.waited))
            except (RuntimeError, ArmError) as error:
                refused[name] = first_line(error)[:LONGEST]
                del arms[name], samples[name]
        if taken == FEWEST:
            for name in _slow(samples):
                del arms[name]
    if not arms:
        said = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise InfrastructureError(f"no baseline of this torch takes {track.problem}; {said}")
    found = {name: 1e6 * usual(each) for name, each in samples.items()}
    timed = [BackendTiming(backend=name, problem=track.problem, median_us=us) for name, us in found.items()]
    return timed, refused, [*rivals(samples), *(name for name, why in refused.items() if why == ahead.LATE)]


def slowed(baseline_us: Sequence[Sequence[float]], alone_us: Sequence[float]) -> Fault | None:
    """A fault, which is nobody's own, where other work makes a baseline so slow that the race says nothing.
    `baseline_us`: its samples there, one row a problem; `alone_us`: what each took before, nothing where that is not
    known."""
    for us, alone in zip(map(shortest_quarter, baseline_us), alone_us, strict=False):
        if us > SLOWED * alone:
            detail = f"the baseline took {us:,.1f} us in the race and {alone:,.1f} us by itself before: it was held up"
            return Fault(verdict=Verdict.DISTURBED, code="measure.disturbed", detail=detail)
    return None


def _slow(samples: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """Those that are not the fastest, whatever held them up."""
    least = {name: min(without(*sample) for sample in each) for name, each in samples.items()}
    fastest = min(map(usual, samples.values()), default=0.0)
    return [name for name, seconds in least.items() if seconds > SLOW * fastest]


def rivals(samples: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """Those that may be faster than the fastest, as other work held them up: half of their samples say no more. Of each
    sample its seconds, and for how many of them, at most, it waited."""
    least = {name: median_high(without(*sample) for sample in each) for name, each in samples.items()}
    fastest = min(map(usual, samples.values()))
    return [name for name, each in samples.items() if TELLS * least[name] < fastest < usual(each)]


def usual(samples: Sequence[tuple[float, float]]) -> float:
    """The median of those that were not held up where they are half of all. Else the shortest quarter's end: what one
    waited is known as a bound alone, its threads' together, and to take that off makes slow ones fast."""
    clean = [seconds for seconds, waited in samples if without(seconds, waited) == seconds]
    return median(clean) if 2 * len(clean) >= len(samples) else shortest_quarter([seconds for seconds, _ in samples])
