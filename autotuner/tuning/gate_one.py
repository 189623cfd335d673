"""The gate alone, on one built variant: found by library, by build id, by trial, or built from its parameters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from autotuner.devices import DEVICES, Chosen, Wishes
from autotuner.forge.build import build, built, cached_builds
from autotuner.forge.family import Family
from autotuner.forge.toolchain import Toolchain
from autotuner.gate.checks import EFFECT, broken_effect
from autotuner.ops import OPS
from autotuner.run.executor import ask, calibration, sound_calibration
from autotuner.run.jobs import Built, CalibrationJob, JudgeJob
from autotuner.spaces.space import SpaceFile
from autotuner.tuning.device_lock import held
from autotuner.tuning.run.quiet import Waiting
from autotuner.tuning.trial_report import TrialReport, trial_report
from autotuner.tuning.workbench import (
    Workbench,
    choose_device,
    default_space,
    executor_for,
    load_space,
    point_of,
    toolchain_for,
)
from autotuner.values import codes, config
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.errors import InfrastructureError, InputError, SourceError
from autotuner.values.files import read_regular
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Artifact, Calibration, Outcome, Say
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict

BLOCKS = 6
"""Timed blocks: enough for an interval."""
NO_DEVICE = "built for an architecture: what needs such a device did not run; `autotuner gate` without --arch runs it"
LARGEST_BYTES = 1 << 20
"""Bytes of a build's record, at most."""


class Judgeable(NamedTuple):
    """A built variant, and what it takes to judge it."""

    artifact: Artifact
    family: Family
    problems: tuple[Problem, ...]
    chosen: Chosen
    toolchain: Toolchain


class GateResult(NamedTuple):
    """What the gate found of it."""

    outcome: Outcome
    report: TrialReport


def subject(target: str, space: str | None, store: str, study: str | None, arch: str | None = None) -> Judgeable:
    """The built variant that a user means: the path of a library, a build id or its beginning (from 6 digits on), the
    number of a trial of a study in the store, or parameters such as "IMPL=simd BLOCK_M=64" of a space, the others as in
    its default point. With `arch`, an architecture, no device is needed: `without_device` judges it.

    Raises InputError when there is none, or it cannot be built.
    """
    if "=" in target:
        return _by_parameters(target, space, arch)
    if Path(target).exists():
        return _by_library(Path(target), space, arch)
    if target.isdecimal() and len(target) < 6:
        return _by_trial(int(target), store, study, arch)
    return _described(_by_build_id(target), space, arch)


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
    device = found.chosen.device
    threads = int(device.facts.get("THREADS_ALLOWED", 1))
    conditions = Conditions(
        problems=found.problems, threads=threads, seeds=fresh_seeds(), min_blocks=BLOCKS, max_blocks=BLOCKS
    )
    free = held(found.chosen.locks, device.name, patience_s, listen)
    with free, closing(executor_for(found.chosen, found.toolchain, found.family, found.problems)) as executor:
        say(f"judging the baselines and timing them on {device.name}")
        calibrated = sound_calibration(ask(executor, CalibrationJob(conditions=conditions)))
        pinned = conditions.model_copy(update={"baselines": calibrated.baselines})
        job = JudgeJob(built=Built(artifact=found.artifact, seconds=0.0), conditions=pinned, sanitize=sanitize)
        say(f"putting {found.artifact.variant} through the gate and {BLOCKS} timed blocks")
        outcome = ask(executor, job)
        if sanitize and isinstance(outcome, Outcome) and _is_unexplained(outcome):
            say("rejected; putting it under the sanitizers")
            outcome = ask(executor, job.model_copy(update={"rejected": outcome, "fresh": True}))
    if not isinstance(outcome, Outcome):
        raise InfrastructureError(f"the gate gave no outcome: {outcome}")
    return GateResult(outcome, trial_report(outcome, found.problems, device, calibrated))


def _is_unexplained(outcome: Outcome) -> bool:
    """Whether it was rejected before the sanitizers had their turn."""
    done = {check.code for check in outcome.gate.checks} if outcome.gate is not None else set()
    return outcome.fault is not None and outcome.verdict.judges and not done & {codes.MEMORY, codes.RACE}


def without_device(found: Judgeable) -> GateResult:
    """What can be said of it where no such device is: that it was built within the limits of the architecture, and the
    check of its machine code. The verdict is never a pass: the rest of the gate did not run."""
    artifact, like = found.artifact, found.problems[0]
    claims = found.family.claims(artifact.variant, like)
    started = time.monotonic()
    code = found.toolchain.disassembly(Path(artifact.path)) if claims.effects else ""
    broken = None if code is None else broken_effect(claims.effects, code)
    status = "unavailable" if code is None else "fail" if broken else "pass"
    check = CheckResult(code=EFFECT.code, status=status, seconds=time.monotonic() - started, note=broken)
    fault = Fault(verdict=Verdict.INFRA_ERROR, code=codes.INCOMPLETE, detail=NO_DEVICE)
    if broken is not None:
        fault = Fault(verdict=EFFECT.verdict, code=EFFECT.code, detail=broken)
    report = GateReport(artifact=artifact.digest, required=(), policy=claims.policy, checks=(check,), fault=fault)
    outcome = Outcome(variant=artifact.variant, verdict=fault.verdict, artifact=artifact, gate=report, fault=fault)
    none = Calibration(baselines=(), timings=(), references=(), versions={})
    return GateResult(outcome, trial_report(outcome, found.problems, found.chosen.device, none))


def calibrate(
    workbench: Workbench,
    patience_s: float = 60 * config.PATIENCE_MINUTES,
    listen: Callable[[Waiting], None] = lambda _: None,
) -> Calibration:
    """The op's baselines against the reference and the clock, for the space's problems. A device that another autotuner
    times is waited for, as by `judge`.

    Raises DeviceBusyError and InfrastructureError.
    """
    with workbench.held(patience_s, listen), closing(workbench.executor()) as executor:
        return calibration(ask(executor, CalibrationJob(conditions=workbench.conditions)))


# Finding it -------------------------------------------------------------------------------------------------------


def _by_library(path: Path, space: str | None, arch: str | None) -> Judgeable:
    """A library, or the folder of a build, with its record beside it."""
    if path.is_dir():
        libraries = sorted(path.glob("*.abi3.so"))
        if len(libraries) != 1:
            raise InputError(f"{path}: expected one extension (*.abi3.so) in it, found {len(libraries)}")
        path = libraries[0]
    record = path.resolve().parent / "artifact.json"
    try:
        artifact = Artifact.model_validate_json(read_regular(record, LARGEST_BYTES))
    except (OSError, ValidationError):
        raise InputError(
            f"{path}: no artifact.json beside it that could be read; give the library of a build, in its folder"
        ) from None
    return _described(artifact.model_copy(update={"path": str(path.resolve())}), space, arch)


def _by_build_id(text: str) -> Artifact:
    wanted = text.lower()
    if not re.fullmatch("[0-9a-f]{6,64}", wanted):
        raise InputError(
            f"{text}: no such file, and no build id (from 6 hexadecimal digits on), trial number or parameters"
            ' such as "IMPL=simd BLOCK_M=64"'
        )
    found = cached_builds(wanted)
    if len(found) != 1:
        how = "none in the cache begins so" if not found else f"{len(found)} in the cache begin so; give more digits"
        raise InputError(f"build id {text}: {how}")
    artifact = built(found[0])
    if artifact is None:
        raise InputError(f"build id {text}: its entry in the cache, {found[0]}, is damaged; build it again")
    return artifact


def _described(artifact: Artifact, space: str | None, arch: str | None) -> Judgeable:
    """With the problems of the space if it is compiled for them, else a usual one that it is compiled for."""
    file = None if space is None else load_space(space)
    near = Path(file.path).resolve().parent if file else Path.cwd()
    family = Family.find(artifact.variant.family, near=near)
    if family.document.op is None:
        raise InputError(f"{artifact.path}: {artifact.variant.family} computes no op, and has no gate")
    usual = OPS[family.document.op].usual(artifact.macros)
    here = [problem for problem in (file.problems if file else ()) if _compiled_for(artifact, problem)]
    backend = artifact.variant.backend
    if file is not None and file.backend == backend:
        chosen = choose_device(file, arch)
    elif arch is not None and "arch" not in DEVICES[backend].choices:
        raise InputError(f"{artifact.variant} is built for {backend}, which has no --arch: leave it out")
    else:
        chosen = DEVICES[backend].choose(Wishes(arch=arch))
    return Judgeable(artifact, family, tuple(here) or (usual,), chosen, toolchain_for(chosen.device))


def _compiled_for(artifact: Artifact, problem: Problem) -> bool:
    """Whether the artifact serves the problem, by the macros that it is compiled with."""
    macros = {**problem.compiled, **problem.lengths}
    return all(artifact.macros.get(name, str(value)) == str(value) for name, value in macros.items())


def _by_trial(number: int, store: str, study: str | None, arch: str | None) -> Judgeable:
    """The variant of a trial, built again from today's sources if it is no longer in the cache."""
    from autotuner.store import Store, queries  # takes long to import, and only a trial is in a store

    with closing(Store.open(store, create=False)) as opened:
        name = queries.resolve_study(opened, study)
        record = queries.trial(opened, name, number)
        workbench = Workbench(SpaceFile.stored(queries.study(opened, name).space_document), arch)
    return _made(workbench, record.outcome.variant.point)


def _by_parameters(text: str, space: str | None, arch: str | None) -> Judgeable:
    """A point of the space; what is not given is as in its default point."""
    workbench = Workbench(load_space(space or default_space()), arch)
    return _made(workbench, point_of(workbench.space, text))


def _made(workbench: Workbench, point: dict[str, Value]) -> Judgeable:
    index = workbench.space.index_of(point)
    if index is None:
        said = " ".join(f"{name}={value}" for name, value in point.items())
        raise InputError(f"{said}: not a valid point of {workbench.space.name} here; `autotuner space show` says why")
    here = (workbench.family, workbench.conditions.problems, workbench.chosen, workbench.toolchain)
    return _built(workbench.variant(index), *here)


def _built(
    variant: Variant, family: Family, problems: tuple[Problem, ...], chosen: Chosen, toolchain: Toolchain
) -> Judgeable:
    made = build(family, variant, problems[0], toolchain)
    if not isinstance(made, Artifact):
        raise SourceError(f"{variant} cannot be built ({made.code}): {made.detail}")
    return Judgeable(made, family, problems, chosen, toolchain)
