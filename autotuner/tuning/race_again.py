"""A variant of a study timed again in a fresh process: against its baseline or against itself."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext

from autotuner.race.statistics import median_interval
from autotuner.race.tie import logs, ratios_between, tie_band
from autotuner.run.executor import ask
from autotuner.run.jobs import RaceJob
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, TrialRecord, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.retrials import rebuilt
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.model import Model
from autotuner.values.outcome import Heat
from autotuner.values.problem import Problem
from autotuner.values.ratio import Objective, Speedup, combined
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault


class Race(Model):
    """The result."""

    study: str
    trial: int
    variant: Variant
    against: str
    problems: tuple[Problem, ...]
    objective: Objective
    speedup: Speedup
    """t_opponent / t_variant: higher is better."""
    blocks: int
    tie: float
    """How wide a tie is in this study, relative."""

    @property
    def winner(self) -> str | None:
        """The side that is faster beyond the tie band, by the whole 95 % interval; None for a tie."""
        if self.speedup.low > 1 / (1 - self.tie):
            return "the variant"
        return self.against if self.speedup.high < 1 / (1 + self.tie) else None


def race(
    store: Store,
    wanted: str | None,
    itself: bool,
    blocks: int = 60,
    trial: int | None = None,
    held: Callable[[Workbench], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Race:
    """Times a trial's variant again, the best one's of the study if none is named, in `blocks` blocks: against a second
    load of the same library (the A/A test), or against the baseline of its run, which frees the search estimate of its
    bias towards lucky measurements. `held` holds the devices meanwhile.

    Raises StoreError, and InputError when nothing was measured yet, the trial has no latency that stands, or the
    variant cannot be built any more.
    """
    name = queries.resolve_study(store, wanted)
    found = standings.required_best(store, name).record if trial is None else _timed(store, name, trial)
    workbench = Workbench(SpaceFile.stored(queries.study(store, name).space_document))
    conditions = workbench.conditions.model_copy(update={"baselines": found.session.calibration.baselines})
    with held(workbench), closing(workbench.executor()) as executor:
        artifacts = (rebuilt(executor, found, conditions).artifact,) * (2 if itself else 1)
        heat = ask(executor, RaceJob(artifacts=artifacts, conditions=conditions, blocks=blocks, fresh=True))
    if isinstance(heat, Fault):
        raise InputError(f"trial {found.number} of {name} cannot be timed again: {heat.detail}")
    if not isinstance(heat, Heat):
        raise InfrastructureError(f"the race gave no result: {heat}")
    ratios = (
        ratios_between(heat, 0, 1, conditions.objective) if itself else combined(logs(heat, 0), conditions.objective)
    )
    against = "its second load" if itself else f"the baseline {', '.join(sorted(set(conditions.baselines)))}"
    tie = tie_band(queries.aa_heats(store, name), conditions.objective)
    return Race.taken_from(
        conditions,
        study=name,
        trial=found.number,
        variant=found.outcome.variant,
        against=against,
        speedup=median_interval(ratios).speedup,
        blocks=blocks,
        tie=tie,
    )


def _timed(store: Store, study: str, number: int) -> TrialRecord:
    """A trial that the gate let pass and whose latency stands."""
    found = queries.trial(store, study, number)
    if found.revoked_at is not None:
        raise InputError(f"trial {number} of {study} was revoked: {found.revoked_reason}")
    if not found.outcome.verdict.has_latency:
        why = f"`autotuner show {number}` says why"
        raise InputError(f"trial {number} of {study} has no latency ({found.outcome.verdict.value}): {why}")
    return found
