"""What a study has shown: which parameters matter, what is rejected where, what is left.

Everything is read from the store; nothing is built. The space is the one of the study's device, wherever this runs. The
beliefs are those of the evolutionary sampler after the study's trials, whichever sampler proposed them.
"""

import contextlib
import math
from collections import Counter
from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError

from autotuner.ops.op import digest_of_folder
from autotuner.race.plausible import floor_us
from autotuner.race.tie import tie_band
from autotuner.search.branches import BranchRecord, Dropped, dropped
from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store, StudyRecord, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.possible import bounds
from autotuner.values import config
from autotuner.values.errors import DiskFullError, InputError
from autotuner.values.files import write_atomically
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration
from autotuner.values.problem import Problem
from autotuner.values.ratio import speedup_of
from autotuner.values.variant import Variant, digest_of
from autotuner.values.versions import version_of
from autotuner.views.surrogate_beliefs import Beliefs, JudgedPoints, RejectedWhere, rejected_where, surrogate_beliefs

DECIDE = ("views", "search", "spaces")
"""The rooms whose sources decide what is believed of given trials."""
LEAST_SHARE, MOST_ACTING = 0.05, 3
"""Of the parameters that are named where few are: the share of the variance, and how many."""
ENOUGH = 20
"""Fewest measured trials for beliefs: of fewer they are mostly the surrogate's prior."""


class BranchStanding(Model):
    """How far the search has gone into a branch."""

    impl: str
    points: int = Field(description="valid ones")
    judged: int
    best: float | None = Field(description="the speedup of its best point; None: none was measured")
    confirmed: bool = Field(description="that was confirmed by finals")
    left: str = Field(description='why the search has left it, in words; "": it has not')
    behind_bound: float | None = Field(
        default=None, description="how many times its bound the best point takes; None: nothing was measured"
    )


class StudyBeliefs(Model):
    """What is known and believed of a space after a study of it."""

    study: str
    space: str
    points: int = Field(description="valid ones")
    judged: int
    measured: int
    left: int = Field(description="valid points that were not judged")
    tie: float = Field(description="how wide a tie is, relative")
    enough: int = Field(default=ENOUGH, description="measured trials that are needed for beliefs")
    branches: tuple[BranchStanding, ...]
    rejects: tuple[RejectedWhere, ...] = Field(description="where all or most variants were rejected")
    rejected: dict[str, int] = Field(description="all rejected trials by the code of the failure")
    elsewhere: dict[str, int] = Field(description="those of them that are in none of `rejects`")
    beliefs: Beliefs | None = Field(description="None: too few trials were measured")


def study_beliefs(store: Store, study: str) -> StudyBeliefs:
    """What the study of that name has shown, by all its trials that stand; a revoked one is a reject. What the last
    finals confirmed of a trial counts instead of its search estimate.

    Raises StoreError: no such study. Raises InputError when its space cannot be made again by this version.
    """
    of = queries.study(store, study)
    space = _space(of)
    corrections = standings.corrections(store, study)
    judged = JudgedPoints(space, queries.judged(store, study), corrections)
    tie = tie_band(queries.aa_heats(store, study), space.file.objective)
    regions, elsewhere = rejected_where(space, judged.points, judged.codes)
    measured = int(judged.measured.sum())
    return StudyBeliefs(
        study=study,
        space=space.name,
        points=len(space),
        judged=len(judged),
        measured=measured,
        left=len(space) - len(judged),
        tie=tie,
        branches=branch_standings(space, judged, _last_calibration(store, study)),
        rejects=regions,
        rejected=dict(Counter(code for code in judged.codes if code is not None).most_common()),
        elsewhere=elsewhere,
        beliefs=surrogate_beliefs(space, judged, of.seed, tie) if measured >= ENOUGH else None,
    )


class Room(Model):
    """How far the baseline of a problem is from what the device can do at most."""

    problem: Problem
    baseline: str
    us: float = Field(description="microseconds that the baseline took")
    bound_us: float = Field(description="microseconds that nothing can go below on this device")


def branches_of(store: Store, study: str) -> tuple[BranchStanding, ...]:
    """How far the search of a study has gone into each branch of its space. Raises as `study_beliefs` does."""
    space = _space(queries.study(store, study))
    judged = JudgedPoints(space, queries.judged(store, study), standings.corrections(store, study))
    return branch_standings(space, judged, _last_calibration(store, study))


def room_of(store: Store, study: str) -> tuple[Room, ...]:
    """For each problem of a study how much room there is above its baseline; none where that is not known."""
    of, found = queries.study(store, study), _last_calibration(store, study)
    if found is None or found.ceilings is None:
        return ()
    times = zip(of.problems, found.baselines, found.baseline_us, strict=True)
    return tuple(
        Room(problem=problem, baseline=name, us=us, bound_us=floor_us(problem, found.ceilings, of.cache == "cold"))
        for problem, name, us in times
    )


def _last_calibration(store: Store, study: str) -> Calibration | None:
    return next((each.calibration for each in reversed(queries.sessions(store, study))), None)


def branch_standings(space: Space, judged: JudgedPoints, calibration: Calibration | None) -> tuple[BranchStanding, ...]:
    """Each branch of the space; those that the default sampler would be out of by now are said to be left."""
    least = bounds(space, calibration) if calibration is not None else (-math.inf,) * len(space.branches)
    arms, confirmed = [], []
    for place, mine, inside in space.parts(judged.points):
        best = float(judged.objectives[mine].min(initial=math.inf))
        arms.append(BranchRecord(len(inside), len(inside), best, bound=least[place]))
        confirmed.append(bool(judged.confirmed[mine][judged.objectives[mine] == best].any()))
    left = {place: _why(each) for place, each in dropped(arms).items()}
    return tuple(
        BranchStanding(
            impl=branch.impl,
            points=len(branch),
            judged=arm.judged,
            best=speedup_of(arm.best) if math.isfinite(arm.best) else None,
            confirmed=confirmed[place],
            behind_bound=math.exp(arm.best - arm.bound) if math.isfinite(arm.best - arm.bound) else None,
            left=left.get(place, ""),
        )
        for place, (branch, arm) in enumerate(zip(space.branches, arms, strict=True))
    )


def _why(found: Dropped) -> str:
    if not found.draws:
        return f"left out: by its bound on this device it takes {found.behind:.3g} times as long as the best of all"
    draws = f"{found.draws} draw{'s' * (found.draws > 1)}"
    if not math.isfinite(found.behind):
        return f"left after {draws}: nothing of it was measured"
    return f"left after {draws}: its best takes {found.behind:.3g} times as long as the best of all"


def _space(of: StudyRecord) -> Space:
    space = Space.enumerate(SpaceFile.stored(of.space_document), of.device.facts)
    if space.digest != of.space_digest:
        raise InputError(f"{of.name}: this version finds other valid points in its space: use the one that ran it")
    return space


def acting(store: Store, study: str, variant: Variant) -> tuple[str, ...]:
    """The parameters of a variant that matter most by the study's beliefs, with their shares of the variance; none
    where too little was measured to believe anything."""
    with contextlib.suppress(InputError):
        beliefs = kept_beliefs(store, study).beliefs
        found = () if beliefs is None else beliefs.parameters
        mine = [each for each in found if each.parameter in variant.point and each.share >= LEAST_SHARE]
        return tuple(f"{each.parameter} ({each.share:.0%})" for each in mine[:MOST_ACTING])
    return ()


# Kept ----------------------------------------------------------------------------------------------------------------


def kept_beliefs(store: Store, study: str) -> StudyBeliefs:
    """The study's beliefs, as `study_beliefs` finds them, and with its errors. Of ten thousand trials they take seconds
    to find: until something of the study changes they are read from the cache, where a file holds a study's."""
    state = _state(store, study)
    path = config.cache_dir() / "beliefs" / f"{digest_of([store.label, study])[:32]}.json"
    with contextlib.suppress(OSError, ValidationError):
        first, _, document = path.read_text().partition("\n")
        if first == state:
            return StudyBeliefs.model_validate_json(document)
    found = study_beliefs(store, study)
    with contextlib.suppress(OSError, DiskFullError, InputError):  # then they are found again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"{state}\n{found.model_dump_json()}")
    return found


def _state(store: Store, study: str) -> str:
    """All that the beliefs depend on: the study as it is now, and this version. The times tell a study from another one
    of its name that came to lie in the same place."""
    progress, revision = queries.progress(store, study), queries.revision(store, study)
    made = queries.study(store, study).created_at
    return digest_of([study, str(made), str(progress.last_activity), revision.tag, _version()])


@cache
def _version() -> str:
    rooms = Path(__file__).parent.parent
    return digest_of([version_of("kernel-autotuner"), *(digest_of_folder(rooms / name) for name in DECIDE)])
