"""A race: a variant against the baseline and the incumbent."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from autotuner.race.arms import Arm, ArmError, Tracks, VariantArm
from autotuner.race.blocks import Blocks, Bounded, LongStep, Throttled
from autotuner.race.calibrate import slowed
from autotuner.race.heat import baseline_arms, variant_arms
from autotuner.race.plausible import clocks_disagree, too_fast
from autotuner.race.rules import decide, out_of_time
from autotuner.race.statistics import trimmed_interval
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Measurement, Say, Stop, Timing
from autotuner.values.ratio import LogRatio, combine
from autotuner.values.verdict import Fault, Verdict

LONGEST_S = 10.0
"""From here on a race ends after the block it is in, if there are three; six where they may promote the variant."""
RACES = 40
"""Races of this length that a run with a limit has time for, at least: long forwards would leave it one or two."""
HELD_UP_S = 4.0
"""The same where most samples are held up: how far they may be off is not less in many of them."""

BASELINE, VARIANT, INCUMBENT = 0, 1, 2


def measure(
    tracks: Tracks, artifact: Artifact, incumbent: Incumbent | None, conditions: Conditions, say: Say
) -> Measurement | Fault:
    """The latency of a variant that has passed the gate: interleaved blocks of {baseline, incumbent, variant}.

    A fault when it cannot be launched, leaves something behind that a right variant does not (G7) or is faster than the
    device; or, not its own, when the machine was disturbed.
    """
    try:
        return _Race(tracks, artifact, incumbent, conditions, say).run()
    except (ArmError, Throttled) as error:
        return error.fault


class Incumbent(NamedTuple):
    """The best variant so far, which another has to beat."""

    artifact: Artifact
    ratios: Sequence[float] = ()
    """ln(t_incumbent / t_baseline) by its races, one a problem; empty: not known."""


class _Race:
    """One variant's way through its blocks."""

    def __init__(
        self, tracks: Tracks, artifact: Artifact, incumbent: Incumbent | None, conditions: Conditions, say: Say
    ) -> None:
        self._tracks, self._conditions, self._say = tracks, conditions, say
        self._incumbent = incumbent
        step = LongStep(say, "loading")
        self._variants = variant_arms(tracks, artifact, step)
        arms: list[Sequence[Arm]] = [baseline_arms(tracks, conditions, step), self._variants]
        if incumbent is not None:
            arms.append(_incumbents(tracks, incumbent.artifact, step))
        self._arms = arms

    def run(self) -> Measurement | Fault:
        step = LongStep(self._say, f"measuring {', '.join(str(track.problem) for track in self._tracks)}")
        blocks = self._blocks(step)
        return self._rechecked() or self._implausible(blocks) or self._measurement(blocks)

    def _blocks(self, step: LongStep) -> Blocks:
        conditions, blocks = self._conditions, Blocks(self._tracks, self._arms, self._conditions.seeds[0], step)
        started = time.monotonic()
        self._stopped: Stop | None = None
        while self._stopped is None:
            blocks.take()
            ratios = [blocks.log_ratios(VARIANT, problem).mid for problem in range(len(self._tracks))]
            gains, count = self._gains(blocks), len(blocks)
            self._stopped = decide(ratios, gains, conditions.tie, conditions.min_blocks, conditions.max_blocks, count)
            longest_s = min(HELD_UP_S if blocks.held_up else LONGEST_S, (conditions.seconds or math.inf) / RACES)
            if self._stopped is None and count > 2 and time.monotonic() - started > longest_s:
                self._stopped = out_of_time(gains, conditions.tie)
        return blocks

    def _gains(self, blocks: Blocks) -> Bounded | None:
        """ln(t_variant / t_incumbent), a block each; over several problems the difference of the objectives."""
        return blocks.gains(VARIANT, INCUMBENT, self._conditions.objective) if self._incumbent is not None else None

    def _rechecked(self) -> Fault | None:
        """G7 on every problem."""
        for track, arm in zip(self._tracks, self._variants, strict=True):
            self._say(f"{codes.RECHECK} {track.problem}")
            fault = arm.recheck()
            if fault is not None:
                return fault
        return None

    def _implausible(self, blocks: Blocks) -> Fault | None:
        """A race beside a baseline that was held up, a latency that no device can have or the host's clock denies;
        the last is not asked of the slow."""
        self._say("plausible")
        assert self._stopped is not None
        held_up = slowed(self._micros(blocks, BASELINE), self._conditions.baselines_us)
        if held_up is not None:
            return held_up
        for problem, (track, arm) in enumerate(zip(self._tracks, self._variants, strict=True)):
            us = 1e6 * median(blocks.seconds_kept(VARIANT, problem))
            fault = too_fast(track.problem, us, self._conditions.ceilings, self._conditions.cache == "cold")
            if fault is None and not self._stopped.gives_up:
                fault = clocks_disagree(arm)
            if fault is not None:
                return fault
        return None

    def _measurement(self, blocks: Blocks) -> Measurement:
        timings = tuple(self._timing(blocks, problem) for problem in range(len(self._tracks)))
        over, gains = combine(self._conditions.objective), self._gains(blocks)
        assert self._stopped is not None
        return Measurement(
            timings=timings,
            objective=over([timing.log_ratio.mid for timing in timings]),
            weights=() if isinstance(self._conditions.objective, str) else self._conditions.objective,
            cache=self._conditions.cache,
            stopped=self._stopped,
            incumbent=self._incumbent.artifact.digest if self._incumbent else None,
            gain=trimmed_interval(gains.mid) if gains is not None else None,
            discarded=blocks.discarded,
            held_up=blocks.held_up,
            unseen=blocks.unseen,
        )

    def _timing(self, blocks: Blocks, problem: int) -> Timing:
        micros = [self._micros(blocks, arm)[problem] for arm in range(len(self._arms))]
        return Timing(
            problem=self._tracks[problem].problem,
            baseline=self._conditions.baselines[problem],
            variant_us=micros[VARIANT],
            baseline_us=micros[BASELINE],
            incumbent_us=micros[INCUMBENT] if self._incumbent is not None else (),
            log_ratio=self._log_ratio(blocks, problem),
            calls=(self._variants[problem].calls, self._arms[BASELINE][problem].calls),
        )

    def _micros(self, blocks: Blocks, arm: int) -> list[tuple[float, ...]]:
        """The samples of an arm, one row a problem."""
        problems = range(len(self._tracks))
        return [tuple(1e6 * seconds for seconds in blocks.seconds_kept(arm, problem)) for problem in problems]

    def _log_ratio(self, blocks: Blocks, problem: int) -> LogRatio:
        """ln(t_variant / t_baseline); of a variant that was raced out by way of the incumbent.

        Such a race has few blocks. A disturbance slows two variants alike, and rarely the baseline with them. And what
        a race has shown to be slower is slower by its figure, too.
        """
        assert self._stopped is not None
        found = blocks.estimate(VARIANT, problem)
        if self._stopped.gives_up and self._incumbent is not None and self._incumbent.ratios:
            found = blocks.log_ratios(VARIANT, problem, INCUMBENT).interval.moved(self._incumbent.ratios[problem])
        return found.model_copy(update={"low": found.low - blocks.unseen, "high": found.high + blocks.unseen})


def _incumbents(tracks: Tracks, incumbent: Artifact, step: LongStep) -> list[VariantArm]:
    """Raises ArmError, not the variant's fault, when it cannot be loaded or launched: it could when it was promoted."""
    try:
        return variant_arms(tracks, incumbent, step, again=True)
    except (ArmError, OSError, ImportError) as error:
        detail = f"the incumbent cannot be launched any more: {error}"
        raise ArmError(Fault(verdict=Verdict.INFRA_ERROR, code=codes.INCUMBENT, detail=detail)) from None
