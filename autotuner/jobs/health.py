"""Is it the device, or the sweep? A probe of known-good variants decides."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from autotuner.ops import op_of
from autotuner.run.executor import Beat, Executor, ask, sound_calibration
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.workbench import Workbench, find_space_file, load_space
from autotuner.values.errors import AutotunerError, DeviceBusyError, DiskFullError, StoreError
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

REMEDY = "look at the machine's log and at the device, then `autotuner devices clear`"


Bench = Callable[[SpaceFile], Workbench]
"""A space on the devices in doubt."""


def probe(store: Store, file: SpaceFile, study: str | None, bench: Bench, beat: Beat) -> str | None:
    """Why the device is sick, in words; None where it judges a variant that is known to be good.

    Known to be good are the best variant of the sweep's study, and the default variant of the shipped space for the
    op on such a device. The device is well if either is judged: a space of one's own may be what is at fault.

    Raises DeviceBusyError where another autotuner times the device, and DiskFullError: nobody can tell then.
    """
    tried = []
    for here, variant in _known_good(store, file, study, bench):
        try:
            with here.held(0.0, lambda _: None), closing(here.executor()) as executor:
                why = _asked(executor, here, variant, beat)
        except (DeviceBusyError, DiskFullError):
            raise
        except AutotunerError as error:
            why = str(error)
        if why is None:
            return None
        tried.append(why)
    return tried[0] if tried else "nothing that is known to be good can be judged there"


def _known_good(store: Store, file: SpaceFile, study: str | None, bench: Bench) -> list[tuple[Workbench, Variant]]:
    found = []
    if study is not None:
        here = bench(file)
        with suppress(StoreError):  # killed before it was made
            best = standings.best(store, study)
            if best is not None and here.space.index_of(best.outcome.variant.point) is not None:
                found.append((here, best.outcome.variant))
    plain, shipped = file, op_of(file.problems[0]).default_spaces.get(file.backend)
    with suppress(AutotunerError):  # it is not there
        if shipped is not None and Path(find_space_file(shipped)).is_file():
            plain = load_space(shipped)
    here = bench(plain)
    return [*found, (here, here.variant(here.space.default_index))]


def _asked(executor: Executor, here: Workbench, variant: Variant, beat: Beat) -> str | None:
    """Why the variant is not judged there; None where it is, and passes."""
    found = sound_calibration(ask(executor, CalibrationJob(conditions=here.conditions), beat))
    conditions = here.conditions.model_copy(update={"baselines": found.baselines, "ceilings": found.ceilings})
    built = ask(executor, BuildJob(variant=variant, conditions=conditions), beat)
    if isinstance(built, Built):
        built = ask(executor, JudgeJob(built=built, conditions=conditions, soak="never", fresh=True), beat)
    if isinstance(built, Outcome) and (built.verdict.has_latency or built.verdict == Verdict.DISTURBED):
        return None
    fault = getattr(built, "fault", None)
    return f"a variant known to be good was not judged: {fault.detail if fault is not None else built}"
