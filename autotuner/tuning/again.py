"""What a study has judged is timed again in fresh processes, and counted: a variant against its baseline or itself, an
exported one beside the best of today, and one beside a baseline by hardware counters."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from pydantic import Field

from autotuner.devices import DEVICES
from autotuner.forge.build import built, entry_of
from autotuner.ops import op_of
from autotuner.race.statistics import median_interval
from autotuner.race.tie import logs, ratios_between, tie_band
from autotuner.run.executor import Beat, Executor, ask, sound_calibration
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, RaceJob
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, TrialRecord, queries
from autotuner.tuning import workbench
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.retrials import rebuilt
from autotuner.tuning.workbench import Workbench
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Calibration, Heat
from autotuner.values.problem import Problem
from autotuner.values.profile import Profile, Side
from autotuner.values.ratio import Objective, Speedup, combined
from autotuner.values.sweep import Earlier
from autotuner.values.validation import no_such
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
    who = (f"trial {found.number} of {name}",) * (2 if itself else 1)
    with held(workbench), closing(workbench.executor()) as executor:
        artifacts = (rebuilt(executor, found, conditions).artifact,) * len(who)
        heat = _raced(executor, artifacts, who, conditions, blocks)
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


# An export beside the best of today -----------------------------------------------------------------------------------


EXPORTED_AND_BEST = ("the exported variant", "today's best")
PROCESSES = 2
"""Fresh processes that must show a difference before it counts."""


class BaselineSince(Model):
    """The baseline of a problem, then and now."""

    problem: Problem
    then: str
    now: str = Field(description="another than `then` where that is slower by more than a tie, or is gone")
    confirmed: Speedup | None = Field(description="t_baseline / t_exported by the finals then; null: there were none")
    today: Speedup = Field(description="the same now, against the baseline `then` unless it is gone")
    moved: bool = Field(description="another baseline, or intervals that lie apart by more than a tie")


class Regression(Model):
    """The result of the race."""

    study: str
    trial: int = Field(description="the best of the study now")
    variant: Variant
    exported_trial: int
    exported: Variant
    exported_at: datetime
    same_build: bool = Field(description="both are one binary: the race is one against itself")
    speedup: Speedup = Field(description="t_exported / t_today over all problems: higher is better")
    slower: bool = Field(description="today's takes longer than the exported one by more than a tie")
    baselines: tuple[BaselineSince, ...]
    tie: float = Field(description="how wide a tie is in the study, relative")
    blocks: int

    @property
    def found(self) -> bool:
        """Whether there is something to look into."""
        return self.slower or any(each.moved for each in self.baselines)


def best_now(store: Store, study: str) -> Earlier | None:
    """The best of a study, to race against it later; None where there is none."""
    best, record = standings.best(store, study), queries.study(store, study)
    outcome = None if best is None else best.outcome
    if best is None or outcome is None or outcome.artifact is None or outcome.measurement is None:
        return None
    artifact, alone = outcome.artifact, len(record.problems) == 1 and best.raced == outcome.artifact.digest
    return Earlier(
        trial=best.record.number,
        exported_at=queries.now(store),
        device=record.device.name,
        problems=record.problems,
        variant=outcome.variant,
        artifact=artifact.digest,
        library_sha256=artifact.library_sha256,
        baselines=tuple(each.baseline for each in outcome.measurement.timings),
        confirmed=(best.confirmed,) if alone else (None,) * len(record.problems),
    )


def regress(
    store: Store,
    study: str,
    earlier: Earlier,
    blocks: int,
    held: Callable[[Workbench], AbstractContextManager[None]] = lambda _: nullcontext(),
    here: Workbench | None = None,
    beat: Beat | None = None,
) -> Regression:
    """Races the exported binary, the study's best and the baseline in a fresh process; in a second one where they
    differ from what was, and what it shows counts then. `held` holds the devices, where the caller does not; `here`:
    the study's workbench, where the caller has it; `beat` is called while the device works.

    Raises InputError where the two do not go together, or one of them cannot be had as it was or fails, and what a
    workbench raises.
    """
    record = queries.study(store, study)
    if (earlier.device, earlier.problems) != (record.device.name, record.problems):
        old, new = (f"{', '.join(map(str, each.problems))}" for each in (earlier, record))
        raise InputError(f"the export is of {old} on {earlier.device}, {study} of {new} on {record.device.name}")
    best = standings.required_best(store, study)
    here = here or workbench.of_study(record)
    tie = tie_band(queries.aa_heats(store, study), here.conditions.objective)
    with held(here), closing(here.executor()) as executor:
        found = sound_calibration(ask(executor, CalibrationJob(conditions=here.conditions), beat))
        now = _baselines(found, earlier.baselines, tie)
        there = {(each.problem, each.backend) for each in found.timings}
        pairs = zip(record.problems, earlier.baselines, now, strict=True)
        raced = tuple(then if (problem, then) in there else other for problem, then, other in pairs)
        pinned = {"baselines": raced, "ceilings": found.ceilings}
        conditions = here.conditions.model_copy(update=pinned)
        artifacts = _exported(earlier, executor, conditions), rebuilt(executor, best.record, conditions).artifact
        for _ in range(PROCESSES):
            heat = _raced(executor, artifacts, EXPORTED_AND_BEST, conditions, blocks, beat)
            speedup = median_interval(ratios_between(heat, 1, 0, conditions.objective)).speedup
            result = Regression(
                study=study,
                trial=best.record.number,
                variant=artifacts[1].variant,
                exported_trial=earlier.trial,
                exported=artifacts[0].variant,
                exported_at=earlier.exported_at,
                same_build=artifacts[0].digest == artifacts[1].digest,
                speedup=speedup,
                slower=speedup.high * (1 + tie) < 1,
                baselines=tuple(_since(earlier, heat, now, tie)),
                tie=tie,
                blocks=len(heat.baseline_us[0]),
            )
            if not result.found:
                break
    return result


def _baselines(found: Calibration, then: tuple[str, ...], tie: float) -> tuple[str, ...]:
    """The baseline of each problem now: that of then, where it is there and as fast as the fastest."""
    us = {(each.problem, each.backend): each.median_us for each in found.timings}
    pairs = zip(dict.fromkeys(each.problem for each in found.timings), then, found.baselines, strict=True)
    return tuple(
        old if us.get((problem, old), float("inf")) <= (1 + tie) * us[problem, new] else new
        for problem, old, new in pairs
    )


def _exported(earlier: Earlier, executor: Executor, conditions: Conditions) -> Artifact:
    """The binary that was exported: from the cache, or built again where that gives the same one. Raises InputError."""
    kept = built(entry_of(earlier.artifact))
    if kept is None or kept.library_sha256 != earlier.library_sha256:
        made = ask(executor, BuildJob(variant=earlier.variant, conditions=conditions))
        kept = made.artifact if isinstance(made, Built) else None
    if kept is not None and kept.digest == earlier.artifact:
        return kept
    raise InputError(
        f"the exported build {earlier.artifact[:12]} is not in the cache, and sources or compiler have changed since:"
        " keep the cache from night to night (`cache prune` drops what is unused longest)"
    )


def _raced(
    executor: Executor,
    artifacts: tuple[Artifact, ...],
    who: tuple[str, ...],
    conditions: Conditions,
    blocks: int,
    beat: Beat | None = None,
) -> Heat:
    """A race on fresh inputs; `who` the artifacts are, in words."""
    drawn = conditions.model_copy(update={"seeds": fresh_seeds()})
    heat = ask(executor, RaceJob(artifacts=artifacts, conditions=drawn, blocks=blocks, fresh=True), beat)
    if isinstance(heat, Fault):
        raise InputError(f"{' and '.join(dict.fromkeys(who))} cannot be timed again: {heat.code}, {heat.detail}")
    if not isinstance(heat, Heat):
        raise InfrastructureError(f"the race gave no result: {heat}")
    for place, fault in heat.faults.items():
        raise InputError(f"{who[place]} fails while it is timed: {fault.code}, {fault.detail}")
    return heat


def _since(earlier: Earlier, heat: Heat, now: tuple[str, ...], tie: float) -> Iterator[BaselineSince]:
    """The baseline of each problem, then and beside the exported binary in this heat."""
    beside = [median_interval(each).speedup for each in logs(heat, 0)]
    parts = zip(earlier.problems, earlier.baselines, now, earlier.confirmed, beside, strict=True)
    for problem, then, new, confirmed, today in parts:
        moved = then != new or (confirmed is not None and confirmed.is_apart(today, tie))
        yield BaselineSince(problem=problem, then=then, now=new, confirmed=confirmed, today=today, moved=moved)


def findings(found: Regression) -> list[str]:
    """What was found, a sentence each."""
    tie = f"more than a tie ({100 * found.tie:.1f} %)"
    quick = f"Today's best is {found.speedup} as fast as the exported variant"
    said = [f"{quick}: slower by {tie}." if found.slower else f"{quick}: not slower by {tie}."]
    for each in found.baselines:
        if each.then != each.now:
            said.append(f"The baseline moved at {each.problem}: {each.then} then, {each.now} now.")
        elif each.moved:
            assert each.confirmed is not None  # nothing else has moved
            share = each.today.mid / each.confirmed.mid
            said.append(
                f"The baseline moved at {each.problem}: {each.then} takes {share:.3f}x what it took then, beside the"
                " same binary."
            )
    if any(each.confirmed is None for each in found.baselines):
        said.append("The export has no finals of this binary: only another choice of baseline would be seen.")
    return said


# Counted --------------------------------------------------------------------------------------------------------------


def profile(
    store: Store,
    trial: TrialRecord,
    beside: str | None,
    acts: tuple[str, ...],
    reports: Path | None,
    held: Callable[[Workbench], AbstractContextManager[None]],
) -> Profile:
    """Profiles a trial on the study's first problem beside that baseline, else the one that it raced against, and
    keeps what was found. `acts`: the parameters that matter most; `reports`: a folder for what the tool itself writes.

    Raises InputError where the trial has no latency, nothing can be counted here, or it cannot be built any more.
    """
    if trial.revoked_at is not None or trial.outcome.measurement is None or not trial.outcome.verdict.has_latency:
        raise InputError(f"trial {trial.number} has no latency that counters could explain: name one that passed")
    here = workbench.of_study(queries.study(store, trial.study))
    timing, kind = trial.outcome.measurement.timings[0], DEVICES[here.device.backend]
    baseline = beside or timing.baseline
    known = op_of(timing.problem).baselines
    if baseline not in known:
        raise InputError(no_such("baseline of this op", baseline, sorted(known)))
    with held(here):
        with closing(here.executor()) as executor:
            artifact = rebuilt(executor, trial, here.conditions).artifact
        side = Side.taken_from(here.conditions, problem=timing.problem, artifact=artifact, baseline=baseline)
        variant = kind.counted(side, reports and reports / "variant.ncu-rep")
        other = kind.counted(side.model_copy(update={"artifact": None}), reports and reports / f"{baseline}.ncu-rep")
    beside_us = median(timing.baseline_us) if timing.baseline == baseline else None
    found = Profile.taken_from(
        side,
        parameters=trial.outcome.variant.point,
        device=here.device,
        variant=variant,
        beside=other,
        us=(median(timing.variant_us), beside_us),
        ceilings=trial.session.calibration.ceilings,
        acts=acts,
        counted_at=datetime.now(UTC),
        host=socket.gethostname(),
    )
    store.record_profile(trial.study, trial.number, found)
    return found
