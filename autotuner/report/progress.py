"""What a person sees of a sweep while it runs."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from autotuner.ops import op_of
from autotuner.spaces.space import Space
from autotuner.tuning.calm import Calm, Protest, Waiting
from autotuner.tuning.driver import Converged, Event, Judged, Started
from autotuner.tuning.plan import Start
from autotuner.tuning.time_left import TimeLeft
from autotuner.tuning.workbench import builders_beside
from autotuner.values.conditions import StudyProtocol
from autotuner.values.outcome import Device, Outcome
from autotuner.values.verdict import Verdict

PROTEST = (
    "what is measured from here on is marked as disturbed and does not count; it is raced again when the machine is"
    " calm, in this run or by the same command later"
)


class Progress:
    """A live line on a terminal; elsewhere one plain line a judged variant."""

    def __init__(
        self,
        console: Console,
        space: Space,
        device: Device,
        protocol: StudyProtocol,
        trials: int,
        seconds: float = math.inf,
    ) -> None:
        """The budget: `trials` judged variants in the study, or `seconds` of this run."""
        self._console, self._space, self._trials = console, space, min(trials, len(space))
        self._protocol, self._device = protocol, device
        self._baseline = op_of(protocol.compiled_for).words.baseline
        self._rejected: Counter[str] = Counter()
        self._seconds, self._until = seconds, math.inf
        self._time_left: TimeLeft | None = None
        self._judged, self._best = 0, math.inf
        self._waits = ""
        """Why and since when the run waits; "" while it does not."""
        self._waited_s = 0.0
        self._best_number: int | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        problems = "; ".join(str(problem) for problem in self._protocol.problems)
        self._say(f"{self._space.name}: {len(self._space):,} valid points of {self._space.raw_count:,}; {problems}")
        self._say(f"{self._device.name}, {self._sides()}{self._protocol.cache} cache; calibrating")
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def starts_from(self, start: Start) -> None:
        """Shows what a new study starts from."""
        if start.first:
            self._say(f"starts with {len(start.first)} of the best points that are there already (--from)")
        if start.known_points is not None:
            count, study = len(start.known_points.points), start.known_points.study
            self._say(f"learns from {count} points of the related study {study} (--cold starts without)")

    def hear(self, event: Event) -> None:
        """Shows what the driver did."""
        if isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Judged):
            self._heard(event)
        elif isinstance(event, Waiting | Calm | Protest):
            self._heard_of_calm(event)
        elif isinstance(event, Converged):
            promise, tie = f"{100 * event.promise:.2g} %", f"{100 * event.tie:.2g} %"
            self._say(f"converged: what is left promises {promise}, and {tie} is a tie (--until-converged stops here)")
        self._refresh()

    def _started(self, event: Started) -> None:
        if self._time_left is None:  # else the devices were calibrated anew
            now, beside = self._now(), builders_beside(self._device, event.lanes)
            self._time_left = TimeLeft(self._trials, now, event.judged, event.lanes, beside)
            self._until = now + self._seconds
        else:
            self._say("calibrated anew")
        self._judged = event.judged
        self._say(f"study {event.study}: {event.judged} judged already" if event.judged else f"study {event.study}")
        for problem, name in zip(self._protocol.problems, event.calibration.baselines, strict=True):
            times = [t for t in event.calibration.timings if t.problem == problem]
            listed = ", ".join(f"{t.backend} {t.median_us:.1f} us" for t in times)
            self._say(f"baseline {problem}: {self._baseline} {name} ({listed})")

    def _heard_of_calm(self, event: Waiting | Calm | Protest) -> None:
        """On a terminal the wait is in the live line; elsewhere each look is a line."""
        if isinstance(event, Waiting):
            self._waits = f"waiting for a calm machine: {event.detail}; since {event.since_s:.0f} s"
            if self._live is None:
                self._say(self._waits)
            return
        self._waits = ""
        self._waited_s += event.waited_s
        after = f"after {event.waited_s:.0f} s of waiting" if event.waited_s >= 1 else "now"
        if isinstance(event, Calm):
            self._say(f"the machine is calm {after}")
        else:
            self._say(f"the machine is disturbed still, {after}: {event.detail}; {PROTEST}")

    def _now(self) -> float:
        """A clock that stands still while the run waits for a calm machine."""
        return time.monotonic() - self._waited_s

    def _heard(self, event: Judged) -> None:
        outcome = event.outcome
        if event.judged > self._judged and self._time_left is not None:
            self._judged = event.judged
            self._time_left.judged(self._now(), *costs(outcome))
        if not outcome.verdict.has_latency and outcome.verdict != Verdict.DISTURBED:
            self._rejected[outcome.verdict] += 1
        if event.best is not None and event.best < self._best:
            self._best, self._best_number = event.best, event.number
        if self._live is None or self._best_number == event.number:
            self._say(f"[{event.judged}/{self._trials}] trial {event.number}: {_line(outcome, self._baseline)}")
        if self._live is None and event.judged % 10 == 0:
            self._say(self._summary())

    def _sides(self) -> str:
        """How many threads both sides have, on a device that has threads."""
        if "THREADS_ALLOWED" not in self._device.facts:
            return ""
        count = self._protocol.threads
        return f"{count} thread{'s' if count > 1 else ''}, "

    def _say(self, text: str) -> None:
        self._console.print(Text(text))

    def _refresh(self) -> None:
        if self._live is not None:
            lines = [self._waits] if self._waits else []
            self._live.update(Group(*map(Text, lines), self._bar(), Text(self._summary())), refresh=True)

    def _bar(self) -> ProgressBar:
        return ProgressBar(total=self._trials, completed=self._judged, width=60)

    def _summary(self) -> str:
        best = (
            f"best {math.exp(-self._best):.3f}x {self._baseline}"
            if math.isfinite(self._best)
            else "nothing measured yet"
        )
        rejected = ", ".join(f"{count} {cause}" for cause, count in self._rejected.most_common()) or "none"
        waited = f"; waited {self._waited_s:.0f} s for a calm machine" if self._waited_s >= 1 else ""
        return f"{self._judged}/{self._trials} judged; {best}; rejected: {rejected}; time left {self._left()}{waited}"

    def _left(self) -> str:
        """Time left, by what was judged so far and by the budget."""
        now = self._now()
        seconds = min(
            self._time_left.left_s(now) if self._time_left is not None else math.inf, max(0.0, self._until - now)
        )
        if seconds == math.inf:
            return "unknown"
        return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {seconds:.0f} s"


def costs(outcome: Outcome) -> tuple[float, float, bool]:
    """What TimeLeft takes in of a judged variant: seconds on a device and of its build, and if it was promoted."""
    busy = sum(seconds for stage, seconds in outcome.seconds.items() if stage != "build")
    promoted = outcome.verdict == Verdict.MEASURED and outcome.measurement is not None and outcome.measurement.promoted
    return busy, outcome.seconds.get("build", 0.0), promoted


def _line(outcome: Outcome, baseline: str) -> str:
    """A judged variant in one line."""
    if outcome.measurement is not None:
        note = "" if outcome.verdict == Verdict.MEASURED else f" ({outcome.verdict})"
        micros = statistics.median(outcome.measurement.timings[0].variant_us)
        return f"{outcome.measurement.speedup:.3f}x {baseline}, {micros:.1f} us{note}  {outcome.variant}"
    why = f" {outcome.fault.code}" if outcome.fault else ""
    if outcome.fault is not None and not outcome.verdict.judges:  # not the variant's: a person can help
        why += f" ({outcome.fault.detail.partition(chr(10))[0]})"
    return f"{outcome.verdict}{why}  {outcome.variant}"
