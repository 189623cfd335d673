"""The audit: whether a variant's latency depends on what it computed before.

A program can be right whenever it computes and still not compute while it is timed: it returns at once where the output
is there already, or keeps the answer for inputs that it has seen. An audit times forwards three times over. Plain: back
to back, as in a race. Still: before each forward its inputs, outputs and workspace are overwritten by what they hold.
Fresh: they are overwritten by inputs that no call has seen and by poison. Still and fresh cost the same copies, so a
program that keeps nothing takes the same time in both, or as much longer as the baseline, which is asked where that
matters. And what the copies add to its plain time, they add to that of the baseline too, measured where they add much.
The baseline has fresh forwards anyway, so that what a race found of the two is found once more where each forward of
both has inputs that no launch had.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, Self

from autotuner.race.arms import Audited, Track, Tracks
from autotuner.race.blocks import LongStep, shortest_quarter
from autotuner.race.statistics import trimmed_bound
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Say
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Verdict

ALPHA = 1e-4
"""Probability that a program which keeps nothing is accused."""
KEPT = 0.03
"""How much longer fresh forwards may take, relative to a plain one. Other numbers heat a device in another way, and
branch predictors learn what comes again: `python -m benchmarks.timing.audits` shows by how much on right kernels."""
ROUNDS = 6
"""Of a sample of each kind, after which it is asked whether the variant is cleared; as many more follow where it
is not. Most variants keep nothing, and show it at once. A few samples have a median that a disturbance of the still
ones can hide something in, so the first clear a variant only by half of `KEPT`, and the shortest quarter must not show
more than `KEPT` either."""
ROUND_S = 0.25
"""Seconds that a round should take. Where it takes longer it is asked after half as many: what disturbs a forward by a
share of its time has to last the longer, the longer a forward is."""
PLAIN_S = 0.06
"""Seconds of a forward from which on the race's plain forwards are enough where nothing is suspicious. What is fast by
how soon it is called again is so now and then, and shorter ones cost little."""
SHARED = 0.05
"""How much longer, relative to a still forward, a fresh one may take as well where the baseline's take as much longer,
which keeps nothing: a device may meet the two kinds of refills in other states."""
SHOWN = 0.05
"""Probability that the baseline seems to take longer and does not."""
MOST_ROUNDS = 48
"""Who is not cleared by then is judged by all of them, and only then accused."""
HIDDEN = 0.5
"""How much more the copies may add to a variant than to the baseline, relative to a plain forward of the variant: they
meet another state of caches and threads after each of the two."""

NOISE = 0.05
"""The same relative to the baseline, which is measured beside it."""
APART = 0.5
"""How much slower a variant may be in the audit than it was in the race, by the clock and relative to the baseline."""
RELOADED = 1e10
"""Bytes a second at which forwards in a row may have to read what those of a race find in a cache."""

Kind = tuple[list[float], Callable[[], float]]
"""Samples of a kind, and what takes one, in seconds."""


class Raced(NamedTuple):
    """Seconds of one forward in the race, by the shortest samples: what disturbs one side makes it longer."""

    variant: float
    baseline: float

    @classmethod
    def of(cls, variant_us: Sequence[float], baseline_us: Sequence[float]) -> Self:
        """Of the samples of a race, microseconds."""
        return cls(min(variant_us) / 1e6, min(baseline_us) / 1e6)


@dataclass(frozen=True)
class Times:
    """Seconds of a forward, a round each. Of the baseline fresh ones alone, or of long plain ones, if nobody asked."""

    raced: Raced
    still: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    baseline: list[float] = field(default_factory=list)
    baseline_still: list[float] = field(default_factory=list)
    baseline_fresh: list[float] = field(default_factory=list)
    row: list[float] = field(default_factory=list)

    @property
    def plain_s(self) -> float:
        """Seconds of a plain forward: here, or where there was none in the race."""
        return median(self.plain) if self.plain else self.raced.variant

    @property
    def shared_s(self) -> float:
        """How much longer a fresh forward takes for any program, seconds, as the baseline shows where it was asked."""
        asked = self.baseline_fresh[len(self.baseline_fresh) - len(self.baseline_still) :]
        longer = [fresh - still for fresh, still in zip(asked, self.baseline_still, strict=True)]
        return max(0.0, min(trimmed_bound(longer, SHOWN), SHARED * shortest_quarter(self.still)))

    @property
    def kept(self) -> list[float]:
        """How much longer a fresh forward takes than a still one, relative to a plain one."""
        shared, pairs = self.shared_s, zip(self.fresh, self.still, strict=True)
        return [(fresh - still - shared) / self.plain_s for fresh, still in pairs]

    @property
    def kept_at_best(self) -> float:
        """The same by the shortest quarter of each."""
        return (shortest_quarter(self.fresh) - shortest_quarter(self.still) - self.shared_s) / self.plain_s

    @property
    def keeps(self) -> bool:
        """Whether it is shown that something is kept."""
        return trimmed_bound(self.kept, ALPHA) > KEPT

    def hidden_us(self, short: Callable[[Sequence[float]], float] = min) -> float:
        """How much more the copies add to the variant than to the baseline, microseconds; without a baseline as if they
        added nothing to it. By `short` samples, as threads that have to be woken may take as long as they like."""
        added = short(self.still) - (short(self.plain) if self.plain else self.raced.variant)
        price = short(self.baseline_still) - short(self.baseline) if self.baseline else 0.0
        return 1e6 * (added - price)

    def lost_us(self, short: Callable[[Sequence[float]], float] = min) -> float:
        """How much longer the variant takes than it should by its race, where each forward of both sides has inputs
        that no launch had, microseconds; beyond what is allowed."""
        plain = short(self.plain) if self.plain else self.raced.variant
        variant = plain + short(self.fresh) - short(self.still)
        copies = short(self.baseline_still) - short(self.baseline) if self.baseline else short(self.still) - plain
        due = (short(self.baseline_fresh) - copies) * self.raced.variant / self.raced.baseline
        return 1e6 * (variant - (1 + APART) * due)

    def is_suspected(self, problem: Problem, gap: float) -> bool:
        """Whether there is a reason, or may be one although a single short sample says that there is none."""
        return any(self.why(problem, gap, short) is not None for short in (min, shortest_quarter))

    def why(self, problem: Problem, gap: float, short: Callable[[Sequence[float]], float] = min) -> str | None:
        """Why the variant's latency depends on earlier calls, in words; None when that is not shown. `gap` is the
        track's. Without a baseline there may be a reason where with one there is none."""
        raced, plain, still, fresh = self.raced, 1e6 * self.plain_s, 1e6 * median(self.still), 1e6 * median(self.fresh)
        noise = NOISE * 1e6 * median(self.baseline) if self.baseline else 0.0
        if self.keeps:
            return (
                f"on {problem} a forward takes {fresh:.3g} us where its inputs are new and its outputs poisoned, and"
                f" {still:.3g} us where they are those of the call before: it keeps results from call to call"
            )
        hidden = self.hidden_us(short)
        if hidden > max(HIDDEN * plain, noise, 1e6 * gap):
            return (
                f"on {problem} a forward takes {plain:.3g} us right after another one and {hidden:.3g} us more"
                " where something else runs between them: it is only fast when it is called again at once"
            )
        in_a_row = short(self.row) - problem.bytes / RELOADED if self.row else 0.0
        slower = max(short(self.plain or self.still), in_a_row) / raced.variant
        baseline = short(self.baseline) if self.baseline else raced.baseline
        if min(slower, slower * raced.baseline / baseline) > 1 + APART:
            return (
                f"on {problem} a forward took {1e6 * raced.variant:.3g} us in the race and {slower:.3g} times as long"
                " in the audit, where the baseline did not: it knows where it is timed"
            )
        if self.lost_us(short) > 1e6 * gap:
            return (
                f"on {problem} it was {raced.baseline / raced.variant:.3g} times as fast as the baseline in the race,"
                " and far slower where each forward of both has inputs that no launch had: it knows what is timed"
            )
        return None


def take(kinds: Sequence[Kind], step: LongStep) -> None:
    """Some more rounds of a sample of each kind, in random order: as many as are due before it is asked again. How many
    there are depends on how long they take and not on what they show. Raises ArmError."""
    half_until = time.monotonic() + ROUNDS // 2 * ROUND_S
    for taken in range(1, ROUNDS + 1):
        for into, sample in random.sample(kinds, len(kinds)):
            step.go_on()
            into.append(sample())
        if 2 * taken == ROUNDS and time.monotonic() >= half_until:
            return


def audited_kinds(times: Times, arms: Audited) -> list[Kind]:
    """Still and fresh forwards of the variant, fresh ones of the baseline, and those in a row."""
    return [
        (times.still, lambda: arms.variant_audit(fresh=False)),
        (times.fresh, lambda: arms.variant_audit(fresh=True)),
        (times.baseline_fresh, lambda: arms.baseline_audit(fresh=True)),
        *([] if arms.row is None else [(times.row, arms.row)]),
    ]


def looked_at(arms: Audited, track: Track, step: LongStep, raced: Raced) -> Times:
    """The times by which the variant is judged. `step`: of all samples. `raced`: of its race. Raises ArmError."""
    times, bound = Times(raced), KEPT / 2
    kinds = audited_kinds(times, arms)
    if raced.variant < PLAIN_S:
        kinds.append((times.plain, arms.variant))
    while len(times.still) < MOST_ROUNDS:
        take(kinds, step)
        if median(times.kept) <= bound and times.kept_at_best <= KEPT:
            break
        if bound != KEPT:
            bound = KEPT
            kinds.append((times.baseline_still, lambda: arms.baseline_audit(fresh=False)))
    if times.keeps or not times.is_suspected(track.problem, track.gap):
        return times
    return looked_at_beside(arms, track, step, raced)


def looked_at_beside(arms: Audited, track: Track, step: LongStep, raced: Raced) -> Times:
    """The same of a variant whose forwards take longer than in the race: with plain forwards and the baseline's by
    turns, since a device may have become slower after the race, or be faster later in the audit. Raises ArmError."""
    times = Times(raced)
    kinds: list[Kind] = [
        *audited_kinds(times, arms),
        (times.plain, arms.variant),
        (times.baseline, arms.baseline),
        (times.baseline_still, lambda: arms.baseline_audit(fresh=False)),
    ]
    while len(times.still) < MOST_ROUNDS:
        take(kinds, step)
        if not times.is_suspected(track.problem, track.gap):
            break
    return times


def audit(tracks: Tracks, artifact: Artifact, raced: Sequence[Raced], conditions: Conditions, say: Say) -> str | Fault:
    """The audit on every problem: what it found, in words, or a fault of the variant. `raced`: on each of them. Raises
    ArmError."""
    notes: list[str] = []
    for track, baseline, before in zip(tracks, conditions.baselines, raced, strict=True):
        step = LongStep(say, f"audit {track.problem}")
        found = judged(track, artifact, baseline, before, step)
        if isinstance(found, Fault):
            return found
        notes.append(f"{100 * median(found.kept):+.1f} %")
    return f"fresh inputs and poisoned outputs change the latency by {', '.join(notes)}"


def judged(track: Track, artifact: Artifact, baseline: str, raced: Raced, step: LongStep) -> Times | Fault:
    """The audit on one problem."""
    arms = track.audit(artifact, baseline)
    times = looked_at(arms, track, step, raced)
    why = times.why(track.problem, track.gap)
    if why is not None:
        return Fault(verdict=Verdict.IMPOSSIBLE, code="measure.memory", detail=why)
    step.go_on()
    fault = arms.variant_audit.recheck()
    step.go_on()
    return fault or arms.variant.recheck() or times
