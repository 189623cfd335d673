"""Every trial of a study in a line: what was tried, what came of it, what finals confirmed. One language for the table,
CSV, JSON, Parquet and data frames."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from autotuner.store import ListedTrial, Store, trials
from autotuner.tuning import standings
from autotuner.values.model import Model
from autotuner.values.ratio import Speedup
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict


class TrialLine(Model):
    """A trial. What has no latency that stands has None for speedups and microseconds.

    A speedup is t_baseline / t_variant: higher is better. Over several problems it is the geometric mean and so are the
    microseconds, or they are the worst problem's where the space file asks for that.
    """

    number: int = Field(description="Optuna's trial number")
    verdict: Verdict
    fault: str | None = Field(description="code of the check or the step that turned it down")
    case: str | None = Field(description="in which case of the gate")
    detail: str | None = Field(description="what was found there")
    speedup: float | None = Field(description="estimate of the search")
    speedup_low: float | None = Field(description="lower end of its 95 % interval")
    speedup_high: float | None
    censored: bool = Field(description="the race was stopped early: the estimate is from few blocks")
    confirmed: float | None = Field(description="speedup in the last finals")
    confirmed_low: float | None
    confirmed_high: float | None
    variant_us: float | None = Field(description="microseconds of one forward")
    baseline_us: float | None = Field(description="of the baseline in the same blocks")
    original: str | None = Field(description="a duplicate's: digest of the artifact that was measured in its place")
    seconds: float = Field(description="that building and judging took")
    session: int = Field(description="number of the run that judged it")
    recorded_at: datetime = Field(description="UTC")
    revoked: str | None = Field(description="why its latency was taken back")
    parameters: dict[str, Value] = Field(description="IMPL first, then by name")

    @classmethod
    def of(cls, trial: ListedTrial, confirmed: Speedup | None) -> TrialLine:
        """The line of a recorded trial."""
        stands = trial.objective is not None
        searched, in_finals = (
            {} if found is None else found.model_dump(mode="json") for found in (trial.speedup, confirmed)
        )
        return cls(
            **trial.model_dump(
                include={"number", "verdict", "fault", "case", "detail", "original", "seconds", "session"}
            ),
            speedup=searched.get("mid"),
            speedup_low=searched.get("low"),
            speedup_high=searched.get("high"),
            censored=stands and trial.censored,
            confirmed=in_finals.get("mid"),
            confirmed_low=in_finals.get("low"),
            confirmed_high=in_finals.get("high"),
            variant_us=trial.median_us if stands else None,
            baseline_us=trial.baseline_us if stands else None,
            recorded_at=trial.recorded_at,
            revoked=trial.revoked_reason,
            parameters=trial.parameters,
        )

    def flat(self) -> dict[str, object]:
        """The columns of a table; each parameter has its own, and their names alone have capitals."""
        fixed = {name: getattr(self, name) for name in type(self).model_fields if name != "parameters"}
        return {**fixed, "verdict": self.verdict.value, **self.parameters}


def trial_lines(store: Store, study: str) -> tuple[TrialLine, ...]:
    """Every recorded trial of a study by number, faults of ours included. Raises StoreError: no such study."""
    confirmed = standings.every_confirmed(store, study)
    found = sorted(trials.listed(store, study), key=lambda each: each.number)
    return tuple(TrialLine.of(each, confirmed.get(each.number)) for each in found)
