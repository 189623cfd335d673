"""Heats of the finals: each a fresh process with one finalist and the baseline, under a thermometer.

The baseline is timed in processes of its own, too, in which no variant was ever loaded. It says whether the machine is
calm, and whether it is a finalist that makes the baseline beside it slow or fast.
"""

from __future__ import annotations

import time
from statistics import median

from autotuner.race.confirm import FINAL_BLOCKS
from autotuner.run.executor import ask
from autotuner.run.jobs import RaceJob
from autotuner.tuning.finals.retrials import TRIES, Retrials
from autotuner.tuning.run.calm import Steady, pause, pause_s, words
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact, Heat
from autotuner.values.verdict import Fault, Verdict

DRIFT, WITNESS = "measure.drift", "measure.witness"
STRIKES = 5
"""Times that the baseline is off beside a finalist, and not off by itself right after, until that is its own doing.
Baselines of some ten microseconds differ from process to process, so two or three times may be chance."""
OFF = 0.1
"""A baseline alone that takes less than on a calm machine by more than this share shows that the machine was none; one
that takes more is slower."""


class FinalHeats:
    """Runs heats, and waits while the machine is disturbed."""

    def __init__(self, trials: Retrials, in_vain: str) -> None:
        """`trials`: calibrated. `in_vain`: what comes of it where the machine stays disturbed."""
        self._trials, self._conditions = trials, trials.conditions
        self._in_vain, self._steady = in_vain, Steady(OFF)
        self.waited_s = 0.0
        """For a calm machine, in all."""

    def draw(self, seeds: tuple[int, int, int, int]) -> None:
        """The inputs of the next heats are drawn from these seeds."""
        self._conditions = self._conditions.model_copy(update={"seeds": seeds})

    def witness(self) -> Heat:
        """The baseline alone, on a machine that is calm, or is waited for until it is.

        Raises InfrastructureError when it stays disturbed.
        """
        return self._calm()[0]

    def of(self, artifact: Artifact, audits: bool = False) -> tuple[Heat | None, Fault | None]:
        """A finalist's heat; or its fault, with the heat in which it showed if there is one. `audits`: it is audited in
        the same process, after the heat.

        Raises InfrastructureError when the machine stays disturbed, or processes are lost again and again.
        """
        strikes, detail = 0, ""
        while strikes < STRIKES:
            started = time.monotonic()
            result = self._race(artifact, audits=audits)
            if isinstance(result, Heat):
                return result, result.faults.get(0)
            if result.code != DRIFT:
                return None, result
            lost_s = time.monotonic() - started
            witness, calm_at_once = self._calm()
            if calm_at_once:
                strikes, detail = strikes + 1, f"{result.detail}, and {_words(witness)} by itself right after"
            else:
                self.waited_s += lost_s
        return None, Fault(verdict=Verdict.IMPOSSIBLE, code=WITNESS, detail=f"{detail}; {STRIKES} times")

    def _calm(self) -> tuple[Heat, bool]:
        """The baseline alone on a calm machine, and whether it was calm at the first look, and no faster than known."""
        before_s, at_once, started = self.waited_s, True, time.monotonic()
        while not isinstance(found := self._race(), Heat):
            if found.code != DRIFT:
                raise InfrastructureError(f"the baseline cannot be timed: {found.detail}")
            who = self._trials.who()
            said = "; ".join(filter(None, [found.detail, who]))
            if at_once:
                self._trials.say(f"{said}; waiting for a calm machine, which comes on top of the time")
            at_once = False
            self.waited_s += time.monotonic() - started
            if self.waited_s >= self._trials.patience_s:
                raise InfrastructureError(
                    f"{said}, after a wait of {self.waited_s:.0f} s: {self._in_vain}; stop what else runs"
                )
            seconds = pause_s(self.waited_s - before_s)
            pause(seconds, self._trials.beat)
            self.waited_s += seconds
            self._look(who, seconds)
            started = time.monotonic()
        if not at_once:
            self._trials.say(f"the machine is calm again; waited {self.waited_s:.0f} s so far")
        return found, not self._lowered(found) and at_once

    def _look(self, who: str, waited_s: float) -> None:
        """Believes a baseline that is slower than known again and again, in the same way, while nobody disturbs.
        `who`: who did before the last pause."""
        if who:
            return
        started = time.monotonic()
        seen = self._race(thermometer=False)
        self.waited_s += time.monotonic() - started
        if not isinstance(seen, Heat) or self._trials.who():
            return
        slow = self._steady.look([median(now) for now in seen.baseline_us], self._conditions.baseline_us, waited_s)
        if slow and slow != self._conditions.slow_baseline_us:
            self._trials.say(words(slow))
            self._conditions = self._conditions.model_copy(update={"slow_baseline_us": slow})

    def _lowered(self, witness: Heat) -> bool:
        """Whether the baseline alone was so much faster that the calm time was none: it is lowered."""
        calm = self._conditions.baseline_us
        taken = [median(now) for now in witness.baseline_us]
        lower = tuple(now if now < (1 - OFF) * us else us for us, now in zip(calm, taken, strict=False))
        self._conditions = self._conditions.model_copy(update={"baseline_us": lower})
        return lower != calm

    def _race(self, *artifacts: Artifact, thermometer: bool = True, audits: bool = False) -> Heat | Fault:
        """A heat; or a fault: that the machine is disturbed, or one of the finalist's own. Without `thermometer` nobody
        asks whether it is disturbed."""
        why: object = None
        conditions = self._conditions if thermometer else self._conditions.model_copy(update={"baseline_us": ()})
        for _ in range(TRIES):
            job = RaceJob(artifacts=artifacts, conditions=conditions, blocks=FINAL_BLOCKS, audits=audits, fresh=True)
            result = ask(self._trials.executor, job, self._trials.beat)
            if isinstance(result, Heat):
                return result
            if isinstance(result, Fault) and (result.code == DRIFT or result.verdict.judges):
                return result
            why = result.detail if isinstance(result, Fault) else result
        raise InfrastructureError(f"the finals cannot be raced: {why}")


def _words(witness: Heat) -> str:
    """What the baseline took alone."""
    return ", ".join(f"{median(problem):.1f} us" for problem in witness.baseline_us)
