"""How much of a study holds when it is done again: the bytes, the gate, the order of the variants, the ratio."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from autotuner.run.executor import ask, sound_calibration
from autotuner.run.jobs import BuildJob, Built, CalibrationJob
from autotuner.store import Store, queries
from autotuner.tuning import gate_one
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.finals.standings import Best, FinalsSummary
from autotuner.values import codes
from autotuner.values.errors import AutotunerError
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Outcome
from autotuner.values.ratio import Speedup

LEVELS = ("bytes", "gate", "order", "ratio")
Found = Literal["reproduced", "differs", "not checked"]


class Again(Model):
    """A finalist's t_baseline / t_variant in the study's finals and in the new ones."""

    trial: int
    then: Speedup
    now: Speedup


class Reproduced(Model):
    """One of the levels, the easiest first."""

    level: str = Field(description=", ".join(LEVELS))
    found: Found
    detail: str
    finalists: tuple[Again, ...] = Field(default=(), description="of the ratio: those that it rests on")


def nothing(why: str) -> tuple[Reproduced, ...]:
    """What a machine finds that can do nothing of it."""
    return tuple(Reproduced(level=each, found="not checked", detail=why) for each in LEVELS)


def without_device(url: str, store: Store, study: str, why: str) -> tuple[Reproduced, ...]:
    """Where the study's device is not, `why`: the best is built for it all the same, and its machine code checked."""
    best = standings.required_best(store, study)
    assert best.outcome.artifact is not None  # it was measured
    try:
        made = gate_one.subject(str(best.record.number), None, url, study, best.outcome.artifact.architecture)
    except AutotunerError as error:
        return nothing(f"{why}; it cannot be built here either: {error}")
    fault = gate_one.without_device(made).outcome.fault
    incomplete = fault is not None and fault.code == codes.INCOMPLETE
    gate = "its machine code is as the gate wants it; the rest needs the device" if incomplete else str(fault)
    found: Found = "not checked" if incomplete else "differs"
    return _bytes(made.artifact, best), Reproduced(level="gate", found=found, detail=gate), *nothing(why)[2:]


def reproduce(trials: Retrials, default: str) -> tuple[Reproduced, ...]:
    """Builds the best of a study, judges it, runs the study's finals again, and compares. The
    study must be a copy, since new finals are recorded in it. `default`: digest of the space's default variant.

    Raises InputError where the study has nothing to reproduce, and what finals raise.
    """
    store, study = trials.store, trials.study
    best = standings.required_best(store, study)
    then, were = standings.summary(store, study).finals, queries.revoked(store, study)
    confirmed = standings.every_confirmed(store, study)
    made = ask(trials.executor, BuildJob(variant=best.outcome.variant, conditions=trials.conditions), trials.beat)
    if not isinstance(made, Built):
        why = "the best cannot be built here"
        return Reproduced(level="bytes", found="differs", detail=why), *nothing(why)[1:]
    job = CalibrationJob(conditions=trials.conditions)
    trials = replace(trials, known=sound_calibration(ask(trials.executor, job, trials.beat)))
    with trials.leased() as leased:
        trials.say(f"judging trial {best.record.number} with fresh seeds")
        judged = leased.calibrated().judged(best.record.number, made)
    Finals(trials, default).run()
    now = standings.summary(store, study).finals
    out = sorted({*queries.revoked(store, study)} - {*were})
    again = standings.every_confirmed(store, study)
    both = tuple(Again(trial=each, then=confirmed[each], now=again[each]) for each in confirmed if each in again)
    return _bytes(made.artifact, best), _gate(trials, best, judged, out), _order(then, now), _ratio(both, then, now)


def _bytes(made: Artifact, best: Best) -> Reproduced:
    was = best.outcome.artifact
    assert was is not None  # it was measured
    if made.library_sha256 == was.library_sha256:
        return Reproduced(level="bytes", found="reproduced", detail="the built library is the same")
    if made.program_hash == was.program_hash:
        return Reproduced(level="bytes", found="reproduced", detail="another library with the same machine code")
    other = "other sources" if made.compiler == was.compiler else f"{made.compiler} instead of {was.compiler}"
    what = "the same sources and compiler" if made.digest == was.digest else other
    found: Found = "differs" if made.digest == was.digest else "not checked"
    return Reproduced(level="bytes", found=found, detail=f"other machine code by {what}")


def _gate(trials: Retrials, best: Best, judged: Outcome, out: list[int]) -> Reproduced:
    """`out`: trials that the finals have revoked."""
    number = best.record.number
    if not judged.verdict.has_latency:
        why = judged.verdict.words if judged.fault is None else f"{judged.fault.code}, {judged.fault.detail}"
        return Reproduced(level="gate", found="differs", detail=f"trial {number}, the best: {why}")
    if out:
        why = queries.trial(trials.store, trials.study, out[0]).revoked_reason or ""
        return Reproduced(level="gate", found="differs", detail=f"trial {out[0]}: {why}")
    return Reproduced(level="gate", found="reproduced", detail=f"trial {number} passes with fresh seeds")


def _order(then: FinalsSummary | None, now: FinalsSummary | None) -> Reproduced:
    if then is None or then.leader is None:
        return Reproduced(level="order", found="not checked", detail="the study had no finals")
    assert now is not None  # they were just run
    if then.leader == now.leader or then.leader in now.tied:
        detail = f"trial {then.leader} leads again" if then.leader == now.leader else f"trial {then.leader} ties again"
        return Reproduced(level="order", found="reproduced", detail=detail)
    detail = f"trial {then.leader} led, trial {now.leader} is faster now by more than a tie"
    return Reproduced(level="order", found="differs", detail=detail)


def _ratio(both: tuple[Again, ...], then: FinalsSummary | None, now: FinalsSummary | None) -> Reproduced:
    if then is None:
        return Reproduced(level="ratio", found="not checked", detail="the study had no finals")
    if now is None or then.leader not in {each.trial for each in both}:
        detail = f"trial {then.leader}, which led, is not in the new finals"
        return Reproduced(level="ratio", found="not checked", detail=detail, finalists=both)
    apart = [each for each in both if each.then.is_apart(each.now, now.tie)]
    shown = (apart or both)[0]
    said = f"{len(both) - len(apart)} of {len(both)} finalists hold; trial {shown.trial}: {shown.then}, now {shown.now}"
    return Reproduced(level="ratio", found="differs" if apart else "reproduced", detail=said, finalists=both)
