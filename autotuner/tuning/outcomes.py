"""What a study has found so far: its outcomes by trial, by variant and by program, and the best of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from autotuner.tuning.promotion import takes_over
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

RETRIES = 3
"""Times that a variant is tried again whose process was lost for reasons that are not its own."""


class Outcomes:
    """The outcomes of a study, kept in memory by the one driver that adds to them."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter()
        """Races of each variant that this run's thermometer refused, by its digest."""
        self._begin()

    def _begin(self) -> None:
        """With none."""
        self._by_number: dict[int, Outcome] = {}
        self._judged: dict[str, Outcome] = {}
        """By the variant's digest; those that were lost are not among them."""
        self._losses: Counter[str] = Counter()
        """Trials of each variant that ended without a judgement, by its digest."""
        self._set_aside: dict[str, Variant] = {}
        """What was measured on a disturbed machine alone, by digest; the first to end first."""
        self._programs: dict[str, Outcome] = {}
        """The first measured outcome of each program, by its hash."""
        self.best: float | None = None
        """The best objective; None before anything was measured."""
        self.incumbent: Outcome | None = None
        """The variant that was promoted last: the others race against it."""

    def add(self, number: int, outcome: Outcome) -> None:
        """Takes in the outcome of a trial."""
        self._by_number[number] = outcome
        digest = outcome.variant.digest
        if outcome.verdict.judges:
            self._judged[digest] = outcome
            self._set_aside.pop(digest, None)
        elif outcome.verdict != Verdict.DISTURBED:
            self._losses[digest] += 1
        elif digest not in self._judged:
            self._set_aside[digest] = outcome.variant
        if outcome.verdict in (Verdict.MEASURED, Verdict.RACED_OUT) and outcome.artifact is not None:
            self._programs.setdefault(outcome.artifact.program_hash, outcome)
        if outcome.verdict == Verdict.MEASURED:
            self.best = min(outcome.objective, self.best if self.best is not None else outcome.objective)
            if takes_over(outcome, self.incumbent):
                self.incumbent = outcome

    def doubt(self, doubtful: Callable[[Outcome], bool], why: str) -> dict[int, Outcome]:
        """Takes the latency of doubtful outcomes back, with all that was concluded from it; what they are now, by
        number."""
        known = self._by_number
        found = {n: each.doubted(why) for n, each in known.items() if each.verdict.has_latency and doubtful(each)}
        if found:
            self._begin()
            for number in sorted(known):
                self.add(number, found.get(number, known[number]))
        return found

    @property
    def judged(self) -> int:
        """Judged variants."""
        return len(self._judged)

    def of_trial(self, number: int) -> Outcome | None:
        """The outcome recorded under that number."""
        return self._by_number.get(number)

    def find(self, variant: Variant) -> Outcome | None:
        """The judgement of a variant, under whichever number."""
        return self._judged.get(variant.digest)

    def measured(self, program: str) -> Outcome | None:
        """The outcome whose measurement a variant with that program shares."""
        return self._programs.get(program)

    def is_tried_again(self, variant: Variant) -> bool:
        """Whether a variant that was lost is worth another try."""
        return self._losses[variant.digest] <= RETRIES

    @property
    def disturbed(self) -> list[int]:
        """Numbers of the trials that were measured on a disturbed machine."""
        return [number for number, outcome in self._by_number.items() if outcome.verdict == Verdict.DISTURBED]

    @property
    def set_aside(self) -> list[Variant]:
        """Variants that were measured on a disturbed machine alone: they are raced again when it is calm."""
        return list(self._set_aside.values())

    def refuse(self, variant: Variant) -> None:
        """Notes that the thermometer refused a race of the variant. One that disturbs the machine by itself is given up
        after some tries, until the next run."""
        self._refused[variant.digest] += 1
        if self._refused[variant.digest] > RETRIES and self._set_aside.pop(variant.digest, None) is not None:
            self._losses[variant.digest] = RETRIES + 1

    def judgeable(self, points: int) -> int:
        """Of that many points those that can be judged: all but those that were lost in every try."""
        given_up = [digest for digest, count in self._losses.items() if count > RETRIES and digest not in self._judged]
        return points - len(given_up)
