"""What a study has found so far: its outcomes by trial, by variant and by program, and the best of them."""

from __future__ import annotations

from collections import Counter

from autotuner.tuning.promotion import takes_over
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

RETRIES = 3
"""Times that a variant is tried again whose process was lost for reasons that are not its own."""


class Outcomes:
    """The outcomes of a study, kept in memory by the one driver that adds to them."""

    def __init__(self) -> None:
        self._by_number: dict[int, Outcome] = {}
        self._judged: dict[str, Outcome] = {}
        """By the variant's digest; those that were lost are not among them."""
        self._losses: Counter[str] = Counter()
        """Trials of each variant that ended without a judgement, by its digest."""
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
        else:
            self._losses[digest] += 1
        if outcome.verdict in (Verdict.MEASURED, Verdict.RACED_OUT) and outcome.artifact is not None:
            self._programs.setdefault(outcome.artifact.program_hash, outcome)
        if outcome.verdict == Verdict.MEASURED:
            self.best = min(outcome.objective, self.best if self.best is not None else outcome.objective)
            if takes_over(outcome, self.incumbent):
                self.incumbent = outcome

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

    def judgeable(self, points: int) -> int:
        """Of that many points those that can be judged: all but those that were lost in every try."""
        given_up = [digest for digest, count in self._losses.items() if count > RETRIES and digest not in self._judged]
        return points - len(given_up)
