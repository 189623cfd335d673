"""The gate alone, on one variant: that of a trial, or of its parameters."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from autotuner.forge.build import build
from autotuner.gate.checks import broken_effect, effect
from autotuner.run.executor import ask, sound_calibration
from autotuner.run.jobs import Built, CalibrationJob, JudgeJob
from autotuner.spaces.space import SpaceFile
from autotuner.tuning.run.waiting import Waiting
from autotuner.tuning.trial_report import TrialReport, trial_report
from autotuner.tuning.workbench import Workbench, default_space, load_space, point_of
from autotuner.values import codes, config
from autotuner.values.errors import InfrastructureError, InputError, SourceError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Artifact, Calibration, Outcome, Say
from autotuner.values.variant import Value
from autotuner.values.verdict import Fault, Verdict

BLOCKS = 6
"""Timed blocks: enough for an interval."""
NO_DEVICE = "built for an architecture: what needs such a device did not run; `autotuner gate` without --arch runs it"


class Judgeable(NamedTuple):
    """A built variant, and the workbench to judge it on."""

    artifact: Artifact
    workbench: Workbench


class GateResult(NamedTuple):
    """What the gate found of it."""

    outcome: Outcome
    report: TrialReport


def subject(
    target: str,
    space: str | None,
    store: str,
    study: str | None,
    arch: str | None = None,
    say: Say = lambda _: None,
    problems: Sequence[str] = (),
) -> Judgeable:
    """The built variant that a user means: the number of a trial of a study in the store, or parameters such as
    "IMPL=simd BLOCK_M=64" of a space, the others as in its default point; `problems` stand in place of the space's own.
    With `arch`, an architecture, no device is needed: `without_device` judges it. `say` hears, before it is built, what
    a look at its sources shows.

    Raises InputError when there is none, or it cannot be built.
    """
    if "=" in target:
        if study is not None:
            raise InputError("parameters are of a space, and a number of a study: leave out --study")
        workbench = Workbench(load_space(space or default_space(problems), None, problems), arch)
        return _made(workbench, point_of(workbench.space, target), say)
    if not target.isdecimal():
        raise InputError(f'{target}: no number of a trial, and no parameters such as "IMPL=simd BLOCK_M=64"')
    if space is not None or problems:
        raise InputError("a trial has the space and the problems of its study: leave out --space and --problem")
    from autotuner.store import Store, queries  # takes long to import, and only a trial is in a store

    with Store.open(store, create=False) as opened:
        name = queries.resolve_study(opened, study)
        record = queries.trial(opened, name, int(target))
        workbench = Workbench(SpaceFile.stored(queries.study(opened, name).space_document), arch)
    made, then = _made(workbench, record.outcome.variant.point, say), record.outcome.artifact
    if then is not None and then.digest != made.artifact.digest:
        say(f"sources, compiler or architecture are others than when trial {target} was judged: so is the binary")
    return made


def judge(
    found: Judgeable,
    sanitize: bool = False,
    patience_s: float = 60 * config.PATIENCE_MINUTES,
    listen: Callable[[Waiting], None] = lambda _: None,
    say: Say = lambda _: None,
) -> GateResult:
    """Puts it through the whole gate in a process of its own, G7 after a few timed blocks included. Nothing is stored.
    With `sanitize` what is rejected goes under the sanitizers too, in a fresh process: they may name the line.
    A device that another autotuner times is waited for, up to `patience_s` seconds; `listen` hears of that, and `say`
    of each part of the work before it begins.

    Raises DeviceBusyError when patience has ended, OracleError when no baseline is right on a case,
    InfrastructureError when the machinery fails.
    """
    here = found.workbench
    with here.held(patience_s, listen), closing(here.executor()) as executor:
        say(f"judging the baselines and timing them on {here.device.name}")
        calibrated = sound_calibration(ask(executor, CalibrationJob(conditions=here.conditions)))
        few = {"baselines_us": (), "min_blocks": BLOCKS, "max_blocks": BLOCKS}  # a busy machine judges too
        pinned = here.conditions.model_copy(update={**calibrated.pinned, **few})
        job = JudgeJob(built=Built(artifact=found.artifact, seconds=0.0), conditions=pinned, sanitize=sanitize)
        say(f"putting {found.artifact.variant} through the gate and {BLOCKS} timed blocks")
        outcome = ask(executor, job)
        if sanitize and isinstance(outcome, Outcome) and _is_unexplained(outcome):
            say("rejected; putting it under the sanitizers")
            outcome = ask(executor, job.model_copy(update={"rejected": outcome, "fresh": True}))
    if not isinstance(outcome, Outcome):
        raise InfrastructureError(f"the gate gave no outcome: {outcome}")
    return GateResult(outcome, trial_report(outcome, here.conditions.problems, here.device, calibrated))


def _is_unexplained(outcome: Outcome) -> bool:
    """Whether it was rejected before the sanitizers had their turn."""
    done = {check.code for check in outcome.gate.checks} if outcome.gate is not None else set()
    return outcome.fault is not None and outcome.verdict.judges and not done & {codes.MEMORY, codes.RACE}


def without_device(found: Judgeable) -> GateResult:
    """What can be said of it where no such device is: that it was built within the limits of the architecture, and the
    check of its machine code. The verdict is never a pass: the rest of the gate did not run."""
    artifact, here = found.artifact, found.workbench
    claims = here.family.claims(artifact.variant, here.conditions.compiled_for)
    started = time.monotonic()
    code = here.toolchain.disassembly(Path(artifact.path)) if claims.effects else ""
    broken = None if code is None else broken_effect(claims.effects, code)
    status = "unavailable" if code is None else "fail" if broken else "pass"
    check = CheckResult(code=effect.code, status=status, seconds=time.monotonic() - started, note=broken)
    fault = Fault(verdict=Verdict.INFRA_ERROR, code=codes.INCOMPLETE, detail=NO_DEVICE)
    if broken is not None:
        fault = Fault(verdict=effect.verdict, code=effect.code, detail=broken)
    report = GateReport(artifact=artifact.digest, required=(), policy=claims.policy, checks=(check,), fault=fault)
    outcome = Outcome(variant=artifact.variant, verdict=fault.verdict, artifact=artifact, gate=report, fault=fault)
    none = Calibration(baselines=(), timings=(), references=(), versions={})
    return GateResult(outcome, trial_report(outcome, here.conditions.problems, here.device, none))


def _made(workbench: Workbench, point: dict[str, Value], say: Say) -> Judgeable:
    """The variant, built from today's sources if it is not in the cache."""
    index = workbench.space.index_of(point)
    if index is None:
        said = " ".join(f"{name}={value}" for name, value in point.items())
        raise InputError(f"{said}: not a valid point of {workbench.space.name} here; `autotuner space show` says why")
    variant = workbench.variant(index)
    branch = next(each for each in workbench.space.branches if each.impl == variant.impl)
    for line in workbench.unread(branch):
        say(line)
    made = build(workbench.family, variant, workbench.conditions.compiled_for, workbench.toolchain)
    if not isinstance(made, Artifact):
        raise SourceError(f"{variant} cannot be built ({made.code}): {made.detail}")
    return Judgeable(made, workbench)
