"""Whether the machine is calm: what the baselines take now, against the best that they took undisturbed.

A calibration slower than that by more than the noise is not believed. The run waits, looks again after growing pauses,
and calibrates anew when the machine is calm. Once its patience has ended it works under protest: what it measures then
is marked as disturbed and raced again later.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import median

from pydantic import Field

from autotuner.run.executor import BEAT_S, Beat
from autotuner.store import Store, StudyRecord, queries
from autotuner.tuning.run.lanes import DeviceLanes
from autotuner.values import config
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration
from autotuner.values.problem import Problem

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 5.0
"""Seconds between two looks. Between these a pause is a quarter of the time waited so far: a calm that begins right
after a look costs a quarter more waiting at most. What disturbs may come again and again: no calm of some seconds is
slept through."""
NO_MATTER = frozenset({"autotuner", "device", "optuna", "python"})
"""What of a session's environment the time of a baseline does not depend on; devices of one name count as one."""

STEADY_S, LOOKS, OF, ALIKE = 20.0, 4, 8, 0.03
"""Seconds of waiting, how many looks of how many last ones, and their largest difference, relative, by which such a
speed is believed."""
MOST_SLOWER = 0.35
"""Never believed beyond this."""

Us = Sequence[float]
"""Microseconds of the pinned baseline, one a problem."""


class Caution(Model):
    """How a run meets a disturbed machine."""

    patience_s: float = Field(
        default=60 * config.PATIENCE_MINUTES, ge=0, description="of one wait, before it works under protest"
    )
    believes: bool = Field(
        default=False, description="takes the machine as calm when it starts, whatever baselines took in earlier runs"
    )


class Waiting(Model):
    """The run waits for a calm machine, or for a device that another run has."""

    detail: str
    since_s: float = Field(description="how long already, seconds")


class Calm(Model):
    """The machine is calm again, and the run goes on."""

    waited_s: float = Field(description="of waiting that no other event has told of")
    detail: str = Field(default="", description="why it is believed to be, where the baselines are slower than known")


class Protest(Model):
    """Patience has ended: the run goes on, and marks what it measures as disturbed."""

    detail: str
    waited_s: float = Field(description="of waiting that no other event has told of")


def fastest_baselines(store: Store, study: StudyRecord, environment: Mapping[str, str]) -> dict[Problem, float]:
    """Microseconds of the fastest baseline on each of the study's problems that was calibrated before: in any study on
    such a device with the same cache policy and threads, under the same versions, while nobody disturbed.

    Of a study with one problem the typical time beside its variants counts as well, should it be shorter; of several,
    trials keep one figure. What came before a session that the user called calm is left out.
    """
    best: dict[Problem, float] = {}
    for session, times in queries.sessions_like(store, study):
        found = session.calibration
        if found.disturbed is not None or _matter(session.environment) != _matter(environment):
            continue
        beside_us = median(times) if times and len({timing.problem for timing in found.timings}) == 1 else math.inf
        for timing in found.timings:
            if timing.problem in study.problems:
                best[timing.problem] = min(timing.median_us, beside_us, best.get(timing.problem, math.inf))
        if found.anew:
            break
    return best


def _matter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in NO_MATTER}


def pause_s(waited_s: float) -> float:
    """Seconds until the next look."""
    return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, waited_s / 4))


def pause(seconds: float, beat: Beat) -> None:
    """Sleeps, and beats meanwhile."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, BEAT_S))
        beat()


class CalmWatch:
    """Believes a calibration, or waits for a better one."""

    def __init__(
        self,
        lanes: DeviceLanes,
        remembered: Mapping[Problem, float],
        caution: Caution,
        who: Callable[[], str],
        listen: Callable[[Waiting | Calm | Protest], None],
        beat: Beat,
    ) -> None:
        """`remembered`: microseconds of the fastest baseline on each problem while nobody disturbed. `who` says who
        disturbs now, in words; "" where nobody can be seen."""
        self._lanes, self._best_us, self.patience_s = lanes, dict(remembered), caution.patience_s
        self._who, self._listen, self._beat = who, listen, beat
        self._believes = caution.believes
        self._problems: Sequence[Problem] = ()
        self._slow_us: dict[Problem, float] = {}
        """Of baselines that have two speeds."""
        self._steady: Steady | None = None
        """From the first calibration on."""
        self._believed_now = ""
        """Why such a speed is believed, until it was told."""
        self._drift = 0.0
        """Of the last calibration, relative."""
        self._since: float | None = None
        """When the machine was first found disturbed, on the monotonic clock; None while it is calm."""
        self.protest: str | None = None
        """Why results are marked as disturbed; None while they are not."""
        self._told_s = 0.0
        """Of `waited_s`, what was told by an event."""
        self.waited_s = 0.0
        """Waited in all, new calibrations not included."""

    @property
    def calm_us(self) -> Us:
        """Microseconds of the fastest baseline on each problem while nobody disturbed."""
        return tuple(self._best_us.get(problem, math.inf) for problem in self._problems)

    @property
    def slow_us(self) -> Us:
        """The same, of the slower speed where a baseline has two."""
        pairs = zip(self._problems, self.calm_us, strict=True)
        return tuple(max(us, self._slow_us.get(problem, us)) for problem, us in pairs)

    def calibrated(self) -> list[Calibration]:
        """A calibration of each device that can be believed or, once patience has ended, one that says why it cannot.

        Raises OracleError or InfrastructureError.
        """
        found = self._calibrate()
        if self._believes:  # once: from here on the run knows what its baselines take
            self._believes, self._best_us = False, {}
            return self._believed([each.model_copy(update={"anew": True}) for each in found])
        while (why := self._slower([each.baseline_us for each in found])) is not None:
            why = self._wait_out(why, [each.baseline_us for each in found])
            if why is not None:
                return [each.model_copy(update={"disturbed": why, "ceilings": None}) for each in found]
            found = self._calibrate()
        return self._believed(found)

    def settled(self) -> bool:
        """Waits until the machine is calm. False where a new calibration is needed: patience has ended, a baseline has
        two speeds, or baselines are far faster than at calibration, so that it was disturbed itself."""
        taken = self._lanes.look(self._beat)
        why = self._slower(taken)
        if why is not None and self._wait_out(why, taken) is not None:
            return False
        two_speeds = bool(self._believed_now)
        self._over()
        return not two_speeds and (why is not None or not self._faster(taken))

    def looks_calm(self) -> bool:
        """Whether one look finds the machine calm; nothing is waited for."""
        return self._slower(self._lanes.look(self._beat)) is None

    # Believing --------------------------------------------------------------------------------------------------

    def _calibrate(self) -> list[Calibration]:
        found = self._lanes.calibrate(self._beat)
        self._drift = found[0].drift
        self._steady = self._steady or Steady(self._drift)
        self._problems = tuple(dict.fromkeys(timing.problem for timing in found[0].timings))
        return found

    def _believed(self, found: list[Calibration]) -> list[Calibration]:
        self._over()
        for each in found:
            for problem, us in zip(self._problems, each.baseline_us, strict=True):
                self._best_us[problem] = min(us, self._best_us.get(problem, us))
        return found

    def _slower(self, taken: Sequence[Us] | str) -> str | None:
        """Why the machine is disturbed, by what the baselines took on each device; None when it is calm."""
        if isinstance(taken, str):
            return taken
        for each in taken:
            for problem, us, best, slow in zip(self._problems, each, self.calm_us, self.slow_us, strict=True):
                if us > (1 + self._drift) * slow:
                    return f"{problem}: the baseline takes {us:.1f} us, and {best:.1f} us undisturbed"
        return None

    def _faster(self, taken: Sequence[Us] | str) -> bool:
        """Whether a baseline is so fast now that the best times known were no undisturbed ones; they are lowered then.
        A look may be a little faster than a calibration, where baselines run beside each other."""
        warm, faster = 1 + self._drift / 2, False
        for each in () if isinstance(taken, str) else taken:
            for problem, us, best in zip(self._problems, each, self.calm_us, strict=True):
                if us * warm < best:
                    self._best_us[problem], faster = us * warm, True
        return faster

    # Waiting ----------------------------------------------------------------------------------------------------

    def _wait_out(self, why: str, taken: Sequence[Us] | str) -> str | None:
        """Waits until a look finds the machine calm; None then, or why it is not when patience has ended. `taken`: what
        the baselines took at the look that found it disturbed."""
        entered, found, already = time.monotonic(), why, self.protest is not None
        paused_s = 0.0
        if self._since is None:
            self._since = entered
        while self.protest is None:
            waited = time.monotonic() - self._since
            who = self._who()
            if self._is_speed(taken, who, paused_s):
                break
            said = "; ".join(filter(None, [found, who]))
            if waited >= self.patience_s:
                self.protest = said
                break
            self._listen(Waiting(detail=said, since_s=waited))
            paused_s = min(pause_s(waited), self.patience_s - waited)
            pause(paused_s, self._beat)
            taken = self._lanes.look(self._beat)
            now = self._slower(taken)
            if now is None:
                self._is_speed(taken, who, paused_s)
                break
            found = now
        self.waited_s += time.monotonic() - entered
        if self.protest is not None and not already:
            self._listen(Protest(detail=self.protest, waited_s=self._untold_s()))
        return self.protest

    def _is_speed(self, taken: Sequence[Us] | str, who: str, waited_s: float) -> bool:
        """Whether baselines that are slower than known have that speed too; they are believed then."""
        assert self._steady is not None
        if who or isinstance(taken, str):
            return False
        slow = self._steady.look([max(each) for each in zip(*taken, strict=True)], self.calm_us, waited_s)
        if slow:
            self._slow_us |= dict(zip(self._problems, slow, strict=True))
            self._believed_now = words(slow)
        return bool(slow) and self._slower(taken) is None

    def _over(self) -> None:
        """The machine is calm."""
        if self._since is not None:
            self._listen(Calm(waited_s=self._untold_s(), detail=self._believed_now))
        self._since = self.protest = None
        self._believed_now = ""

    def _untold_s(self) -> float:
        """Seconds of waiting that no event has told of; this one does."""
        untold, self._told_s = self.waited_s - self._told_s, self.waited_s
        return untold


# A baseline of two speeds -----------------------------------------------------------------------------------------


class Steady:
    """A baseline that is slower than it was, though nobody disturbs, may have another speed of its own: a graph of
    cuDNN's and other kernels had two on one GPU (docs/method/busy-machine.md). The fastest known time may then be one
    that hardly any look finds again, and a machine on which nobody else works would be waited for without end.

    Looks of a run at baselines alone, while nobody is seen who disturbs; those while somebody does are left out, and
    no reason to begin anew. Of each baseline those count that found it slower than known: in between it may have been
    as fast as ever."""

    def __init__(self, drift: float) -> None:
        """`drift`: how far a baseline may be off without being slower, relative."""
        self._drift = drift
        self._seconds = 0.0
        self._slow: dict[int, deque[float]] = {}

    def look(self, us: Sequence[float], calm_us: Sequence[float], seconds: float) -> tuple[float, ...]:
        """What they take now, microseconds, one a problem, after `seconds` of waiting; `calm_us` is the fastest that is
        known. What each takes at most on a calm machine, if that can be said of any that is slower; else nothing."""
        self._seconds += seconds
        for place, (now, calm) in enumerate(zip(us, calm_us, strict=True)):
            if now > (1 + self._drift) * calm:
                self._slow.setdefault(place, deque(maxlen=OF)).append(now)
        found = {place: self._speed(looks, calm_us[place]) for place, looks in self._slow.items()}
        if self._seconds < STEADY_S or not any(found.values()):
            return ()
        return tuple(max(calm, found.get(place, calm)) for place, calm in enumerate(calm_us))

    def _speed(self, looks: Collection[float], calm_us: float) -> float:
        """The slowest speed that enough of these looks agree on; 0 where they do not."""
        found = sorted(us for us in looks if us <= (1 + MOST_SLOWER) * calm_us)
        alike = [most for least, most in zip(found, found[LOOKS - 1 :], strict=False) if most <= (1 + ALIKE) * least]
        return max(alike, default=0.0)


def words(slow_us: Sequence[float]) -> str:
    """Why a slower speed is believed."""
    took = ", ".join(f"{us:.1f} us" for us in slow_us)
    return f"the baseline takes {took} again and again, and nobody disturbs: it has two speeds"
