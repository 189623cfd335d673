"""What a study has found so far: its outcomes by trial, by variant and by program, and the best of them.

A sweep may have tens of thousands of trials, and an outcome takes some 55 KB. So memory holds of each what later
decisions need; a whole outcome is read from the store when it is wanted, but for the incumbent's.
"""

from collections import Counter
from collections.abc import Callable
from statistics import median

from autotuner.forge.cache import is_there, keep
from autotuner.values.outcome import Artifact, Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

RETRIES = 3
"""Times that a variant is tried again whose process was lost for reasons that are not its own."""


class Outcomes:
    """The outcomes of a study, kept in mind by the one driver that adds to them."""

    def __init__(self, read: Callable[[int], Outcome]) -> None:
        """`read`: the outcome that is recorded under a number."""
        self._read = read
        self.suspended: set[str] = set()
        """Digests of artifacts that nothing races against: one of them may have spoilt a race."""
        self._recorded: dict[int, int] = {}
        """By trial the number under which the store has its outcome: a variant that was judged before is told again."""
        self._judged: dict[str, int] = {}
        """The recorded number of each variant by its digest; those that were lost are not among them."""
        self._losses: Counter[str] = Counter()
        """Trials of each variant that ended without a judgement, by its digest."""
        self._programs: dict[str, int] = {}
        """The recorded number of the first measured variant of each program, by the program's hash."""
        self.best: float | None = None
        """The best objective; None before anything was measured."""
        self.incumbent: Outcome | None = None
        """The variant that was promoted last: the others race against it."""
        self._beside: dict[str, list[tuple[float, ...]]] = {}
        """What races against an incumbent show of it, by its artifact: medians of ln(t_incumbent / t_baseline), one a
        problem."""

    def add(self, number: int, outcome: Outcome, recorded: int | None = None) -> None:
        """Takes in the outcome of a trial. `recorded`: under which number the store has it, if under another one."""
        digest, verdict, recorded = outcome.variant.digest, outcome.verdict, number if recorded is None else recorded
        self._recorded[number] = recorded
        if verdict.judges:
            self._judged[digest] = recorded
        else:
            self._losses[digest] += 1
        if verdict in (Verdict.MEASURED, Verdict.RACED_OUT) and outcome.artifact is not None:
            self._programs.setdefault(outcome.artifact.program_hash, recorded)
        raced = outcome.measurement if verdict in (Verdict.MEASURED, Verdict.RACED_OUT) and recorded == number else None
        if raced is not None and raced.incumbent is not None and raced.of_incumbent:
            self._beside.setdefault(raced.incumbent, []).append(raced.of_incumbent)
        if verdict == Verdict.MEASURED:
            self.best = min(outcome.objective, self.best if self.best is not None else outcome.objective)
            if takes_over(outcome, self.opponent()):
                self.incumbent = outcome

    def opponent(self) -> Outcome | None:
        """The incumbent, kept from being pruned while variants race against it. Where its library is gone there is none
        any more, until another one is promoted."""
        if self.incumbent is not None and self.incumbent.artifact is not None and not keep(self.incumbent.artifact):
            self.incumbent = None
        if self.incumbent is None or self.incumbent.artifact is None:
            return None
        return None if self.incumbent.artifact.digest in self.suspended else self.incumbent

    def opponent_ratios(self) -> tuple[float, ...]:
        """ln(t_incumbent / t_baseline) on each problem, by all of the incumbent's races; empty where there is none.

        It leads because it looked fast in its own race, perhaps beside a baseline that was slowed by less than is
        noticed. What it shows against others is not chosen: their median counts where it is the slower one. So what
        loses to the incumbent never has a better figure than the incumbent's own.
        """
        measured = self.incumbent.measurement if self.incumbent is not None else None
        if measured is None or self.incumbent is None or self.incumbent.artifact is None:
            return ()
        own = tuple(timing.log_ratio.mid for timing in measured.timings)
        races = [own, *self._beside.get(self.incumbent.artifact.digest, ())]
        return tuple(max(first, median(each)) for first, each in zip(own, zip(*races, strict=True), strict=True))

    def tell_again(self, number: int, variant: Variant) -> Outcome | None:
        """The judgement of a variant under whichever number, which is that of another trial from now on; None where
        there is none."""
        recorded = self._judged.get(variant.digest)
        if recorded is None:
            return None
        outcome = self._read(recorded)
        self.add(number, outcome, recorded)
        return outcome

    @property
    def judged(self) -> int:
        """Judged variants."""
        return len(self._judged)

    def of_trial(self, number: int) -> Outcome | None:
        """The outcome of the trial with that number."""
        return self._read(self._recorded[number]) if number in self._recorded else None

    def measured(self, program: str) -> Outcome | None:
        """The outcome whose measurement a variant with that program shares. One that was revoked meanwhile is none."""
        number = self._programs.get(program)
        if number is None:
            return None
        outcome = self._read(number)
        if outcome.verdict.has_latency:
            return outcome
        del self._programs[program]
        return None

    def recorded(self, artifact: Artifact) -> int | None:
        """The number under which the measurement of its program is in the store."""
        return self._programs.get(artifact.program_hash)

    def is_tried_again(self, variant: Variant) -> bool:
        """Whether a variant that was lost is worth another try."""
        return self._losses[variant.digest] <= RETRIES

    def judgeable(self, points: int) -> int:
        """Of that many points those that can be judged: all but those that were lost in every try."""
        given_up = [digest for digest, count in self._losses.items() if count > RETRIES and digest not in self._judged]
        return points - len(given_up)


def takes_over(outcome: Outcome, incumbent: Outcome | None) -> bool:
    """Whether a measured variant becomes the incumbent. It must have been promoted and be there still.

    One that raced against an earlier incumbent must also be faster than the present one by the whole intervals of
    their objectives.
    """
    new, artifact = outcome.measurement, outcome.artifact
    if new is None or artifact is None or not new.promoted or not is_there(artifact):
        return False
    if incumbent is None or incumbent.measurement is None or incumbent.artifact is None:
        return True
    surely_faster = new.log_ratio.high < incumbent.measurement.log_ratio.low
    return new.incumbent == incumbent.artifact.digest or surely_faster
