"""What a person sees of a sweep, and of finals, while they run: lines at the foot of a terminal that tick, with what
happens printed above them."""

import math
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.text import Text

from autotuner.ops import op_of
from autotuner.spaces.space import Space
from autotuner.tuning.finals.retrials import Step
from autotuner.tuning.run.driver import Converged, Event, Judged, Started, UnderWay
from autotuner.tuning.run.plan import Start
from autotuner.tuning.run.waiting import Waited, Waiting
from autotuner.values.conditions import StudyProtocol
from autotuner.values.outcome import Device, Outcome
from autotuner.values.ratio import quoted, speedup_of
from autotuner.values.verdict import Verdict
from autotuner.views.words import counted, counts_words, cut, held_up_words, span

TICKS = 4
"""Times a second that the lines are drawn anew."""
SHORTEST, LONGEST = 8, 30
"""Characters of a bar."""


class TwoLines:
    """Draws its lines again and again, also while the program waits; nothing where the console is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(self, console=console, refresh_per_second=TICKS, transient=True)

    @abstractmethod
    def lines(self, width: int) -> Sequence[str]:
        """What is at the foot now, in so many characters."""

    @property
    def is_live(self) -> bool:
        """Whether anybody sees the lines."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """Prints a line above."""
        self._console.print(Text(text, style=style))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width - 1  # a full line makes some terminals begin another
        for line in self.lines(width):
            yield Text(cut(line, width), no_wrap=True, end="\n")


def with_bar(before: str, share: float, after: str, width: int) -> str:
    """A line with a bar in it of which so much is full, 0..1, where there is room for one."""
    room = min(width - len(before) - len(after) - 2, LONGEST)
    if room < SHORTEST:
        return f"{before} {after}"
    full = round(min(max(share, 0.0), 1.0) * room)
    return f"{before} {'━' * full}{'─' * (room - full)} {after}"


def left(seconds: float) -> str:
    """A time left, for a person; what has taken longer than was expected has none that anybody knows."""
    if seconds == float("inf"):
        return "time left unknown"
    if seconds < 1:
        return "longer than expected"
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


EARLY = (1, 3)
"""Judged variants after which the time left is told too, where it is not shown all the while."""


class Progress(TwoLines):
    """Two live lines on a terminal and above them what is of interest; elsewhere one plain line a judged variant."""

    def __init__(
        self,
        console: Console,
        space: Space,
        device: Device,
        protocol: StudyProtocol,
        trials: int,
        seconds: float = math.inf,
        finals_s: float = 0.0,
    ) -> None:
        """The budget: `trials` judged variants in the study, or `seconds` from now on; then finals of `finals_s`."""
        super().__init__(console)
        self._space, self._trials = space, min(trials, len(space))
        self._protocol, self._device = protocol, device
        self._baseline = op_of(protocol.compiled_for).words.baseline
        self._rejected: Counter[Verdict] = Counter()
        """By verdict."""
        self._failed: Counter[Verdict] = Counter()
        """What says nothing of the variant, by verdict."""
        self._kinds: set[str] = set()
        """Causes of which there was one already."""
        self._until, self._finals_s = time.monotonic() + seconds, finals_s
        self._time_left: TimeLeft | None = None
        self.study: str | None = None
        """Its name, once it is known."""
        self.judged = 0
        """Variants of the study, those of earlier runs included."""
        self._best = math.inf
        self._doing, self._since = "timing the baselines", time.monotonic()
        """What goes on now, and since when, on the monotonic clock."""
        self._waits = ""
        """What is waited for; "" while nothing is."""

    def __enter__(self) -> Self:
        problems = "; ".join(str(problem) for problem in self._protocol.problems)
        self.say(f"{self._space.name}: {len(self._space):,} valid points of {self._space.raw_count:,}; {problems}")
        threads = counted(self._protocol.threads or 0, "thread") + ", "
        threads *= "THREADS_ALLOWED" in self._device.facts
        self.say(f"{self._device.name}, {threads}{self._protocol.cache} cache")
        self.say(
            f"first the baselines are timed, which is what {self._baseline} takes here: up to a minute or two; then"
            " each variant is built, checked and raced against the fastest of them"
        )
        return super().__enter__()

    def starts_from(self, start: Start) -> None:
        """Shows what a new study starts from."""
        if start.first:
            self.say(f"starts with the {counted(len(start.first), 'point')} asked for")
        if start.hints:
            self.say("each implementation starts with points that were fast at similar problems (--first-points)")
        if start.known_points is not None:
            points, study = counted(len(start.known_points.points), "point"), start.known_points.study
            self.say(f"learns from {points} of the related study {study} (--cold starts without)")

    def hear(self, event: Event) -> None:
        """Shows what the driver did."""
        if isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Judged):
            self._heard(event)
        elif isinstance(event, Waiting | Waited):
            self._heard_of_waiting(event)
        elif isinstance(event, UnderWay):
            if (doing := _doing(event)) != self._doing:
                self._doing, self._since = doing, time.monotonic()
        elif isinstance(event, Converged):
            promise, tie = f"{100 * event.promise:.2g} %", f"{100 * event.tie:.2g} %"
            said = f"what was not tried yet promises {promise} more speed, and less than {tie} counts as a tie"
            self.say(f"converged: {said} (--until-converged stops here)")

    def _started(self, event: Started) -> None:
        self._time_left = TimeLeft(self._trials, time.monotonic(), event.judged)
        self.study, self.judged = event.study, event.judged
        self.say(f"study {event.study}: {event.judged} judged already" if event.judged else f"study {event.study}")
        op, pinned = op_of(self._protocol.compiled_for), event.calibration.baselines
        self._baseline = op.over(pinned)
        for problem, name in zip(self._protocol.problems, pinned, strict=True):
            times = [t for t in event.calibration.timings if t.problem == problem]
            listed = ", ".join(f"{t.backend} {t.median_us:.1f} us" for t in times)
            said = name if op.over([name]) == name else f"{op.words.baseline} {name}"
            self.say(f"baseline {problem}: {said} ({listed})")
        for why in event.calibration.left_out.values():
            self.say(f"no baseline here: {why}")
        for doubt in event.calibration.doubts:
            self.say(doubt, style="yellow")

    def _heard_of_waiting(self, event: Waiting | Waited) -> None:
        """On a terminal a wait is one line and then in the live ones; elsewhere each look is a line."""
        if isinstance(event, Waiting):
            if not self._waits or not self.is_live:
                self.say(f"waiting for a quiet machine: {event.detail}; since {event.since_s:.0f} s")
            self._waits, self._since = event.detail, time.monotonic() - event.since_s
            return
        self._waits, self._since = "", time.monotonic()
        ending = f"goes on beside it: {event.detail}" if event.detail else "the machine is quiet"
        self.say(f"{ending}, after {event.waited_s:.0f} s of waiting")

    def _heard(self, event: Judged) -> None:
        outcome = event.outcome
        if event.judged > self.judged and self._time_left is not None:
            self.judged = event.judged
            self._time_left.judged(time.monotonic(), promoted(outcome))
        if not outcome.verdict.has_latency:
            (self._rejected if outcome.verdict.judges else self._failed)[outcome.verdict] += 1
        best = math.inf if event.best is None else event.best
        leads, self._best = best < self._best, best
        if leads or self._is_news(outcome) or not self.is_live:
            style = "green" if leads else "red" if not outcome.verdict.has_latency else ""
            held_up = "" if outcome.measurement is None else held_up_words(outcome.measurement)
            line = f"[{event.judged}/{self._trials}] trial {event.number}: {outcome.line(self._baseline, held_up)}"
            self.say(line, style)
        if not self.is_live and (event.judged % 10 == 0 or event.judged in EARLY):
            self.say(self._summary())

    def _is_news(self, outcome: Outcome) -> bool:
        """Whether it is the first of its kind to be rejected, or a fault that a person may have to mend."""
        if outcome.verdict.has_latency:
            return False
        kind = outcome.verdict.value if outcome.fault is None else outcome.fault.code
        is_new = kind not in self._kinds
        self._kinds.add(kind)
        return is_new or not outcome.verdict.judges

    # At the foot of a terminal ----------------------------------------------------------------------------------

    def lines(self, width: int) -> list[str]:
        """What goes on and what was rejected; how far it is, the best, and the time left."""
        since = f"{time.monotonic() - self._since:.0f} s"
        now = cut(f"waiting {since}: {self._waits}" if self._waits else f"{self._doing}; {since}", width)
        rejects = f"rejected: {_counts(self._rejected)}" if self._rejected else ""
        failed = f"not judged: {_counts(self._failed)}" if self._failed else ""
        room = width - len(now) - 3
        causes = cut("; ".join(filter(None, (failed, rejects))), room) if room > len("rejected: ...") else ""
        best = f"{self._best_words()}; " if math.isfinite(self._best) else ""
        share = self.judged / self._trials if self._trials else 1.0
        return [
            f"{now} | {causes}" if causes else now,
            with_bar(f"{self.judged}/{self._trials}", share, f"{best}{self._left()}", width),
        ]

    def _summary(self) -> str:
        best = self._best_words() if math.isfinite(self._best) else "no right variant was measured yet"
        rejected = _counts(self._rejected) if self._rejected else "none"
        failed = f"; not judged: {_counts(self._failed)}" if self._failed else ""
        return f"{self.judged}/{self._trials} judged; {best}; rejected: {rejected}{failed}; {self._left()}"

    def _best_words(self) -> str:
        return f"best {quoted(speedup_of(self._best), False, self._baseline)}"

    def _left(self) -> str:
        """Time left, by what was judged so far and by the budget, finals included."""
        now, finals = time.monotonic(), " with finals" if self._finals_s else ""
        if now >= self._until or self.judged >= self._trials:
            why = "all are judged" if self.judged >= self._trials else "the time of the search is up"
            return why + (": finals next" if finals else "")
        of_trials = self._time_left.left_s(now) if self._time_left is not None else math.inf
        return left(min(of_trials, self._until - now) + self._finals_s) + finals


def _doing(event: UnderWay) -> str:
    parts = [
        f"building {', '.join(map(str, event.building))}" if event.building else "",
        f"judging {event.judging[0]}" if event.judging else "",
        "timing the best against itself, which shows how much times vary here"
        if event.racing and not event.judging
        else "",
    ]
    return ", ".join(filter(None, parts)) or "choosing what to try next"


def _counts(causes: Counter[Verdict]) -> str:
    return counts_words({cause.words: count for cause, count in causes.most_common()})


def promoted(outcome: Outcome) -> bool:
    """Whether a judged variant was promoted, which takes many times as long."""
    return outcome.verdict == Verdict.MEASURED and outcome.measurement is not None and outcome.measurement.promoted


class FinalsProgress(TwoLines):
    """Two live lines on a terminal; elsewhere a line a step."""

    def __init__(self, console: Console, seconds: float) -> None:
        """`seconds`: what the finals should take."""
        super().__init__(console)
        self._began = self._since = time.monotonic()
        self._left_s, self._now, self._at = seconds, "starting", self._began

    def __enter__(self) -> Self:
        self.say(f"finals: the best are timed again, in fresh processes on fresh inputs; about {span(self._left_s)}")
        return super().__enter__()

    def hear(self, step: Step | Waiting | Waited) -> None:
        """Shows what the finals do."""
        now = time.monotonic()
        if isinstance(step, Waiting):
            self._now, self._since = f"waiting for {step.detail}", now - step.since_s
            return
        if isinstance(step, Waited):
            return
        self._now, self._since = step.text.partition(";")[0], now
        if step.left_s is not None:
            self._left_s, self._at = step.left_s, now
        if not step.passing:
            how_long = f"; {left(step.left_s)}" if step.left_s is not None and not self.is_live else ""
            self.say(f"finals: {step.text}{how_long}")

    def lines(self, width: int) -> list[str]:
        now = time.monotonic()
        still, gone = max(0.0, self._left_s - (now - self._at)), now - self._began
        share = gone / (gone + still) if gone + still else 0.0
        return [
            f"{self._now}; {now - self._since:.0f} s",
            with_bar("finals", share, f"{gone:.0f} s so far, {left(still)}", width),
        ]


# How long it will still take -----------------------------------------------------------------------------------------


class TimeLeft:
    """An estimate of the time left of a sweep. Times are seconds of any one clock.

    Variants are taken to come as those of the later half did: A/A tests, devices that start and the first build belong
    to the beginning, and against a better incumbent a race is shorter. Those that were promoted do not count where
    there are others: they cost many times as much, and few are to come.
    """

    def __init__(self, total: int, now: float = 0.0, before: int = 0) -> None:
        """`total` variants are to be judged; `before` of them were when the sweep began at `now`."""
        self._left, self._last = total - before, now
        self._seconds: list[tuple[float, bool]] = []
        """Since the one before, and whether it was promoted."""

    def judged(self, now: float, promoted: bool = False) -> None:
        """One more variant was judged."""
        self._seconds.append((now - self._last, promoted))
        self._left, self._last = self._left - 1, now

    def left_s(self, now: float) -> float:
        """Seconds left until all are judged; infinite before the first was."""
        if self._left <= 0:
            return 0.0
        later = self._seconds[len(self._seconds) // 2 :]
        usual = [seconds for seconds, promoted in later if not promoted] or [seconds for seconds, _ in later]
        return max(0.0, self._left * fmean(usual) - (now - self._last)) if usual else math.inf
