"""A judged variant beside a baseline, by hardware counters; kept beside the trial."""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from autotuner.devices import DEVICES
from autotuner.ops import op_of
from autotuner.store import Store, TrialRecord, queries
from autotuner.tuning import workbench
from autotuner.tuning.finals.retrials import rebuilt
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import InputError
from autotuner.values.profile import Profile, Side
from autotuner.values.validation import no_such


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
