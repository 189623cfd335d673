"""Where a new study starts: what a related study in the store has measured, moved onto the new one's space.

Related are studies of the same op, kernel family and backend: of another shape, element type, mask, number of threads
or device, of another space file of the family, or of the same one before its sources changed. How near one is, is
counted in doublings and changes, as a person who tunes would: docs/method/search.md has it in words.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotuner.ops import op_of
from autotuner.spaces.branch_points import doublings, expected_latency
from autotuner.spaces.expression import ExpressionError
from autotuner.spaces.first_points import nearest, read_first_points
from autotuner.spaces.space import Space
from autotuner.store import Store, StudyRecord, queries
from autotuner.store.records import JudgedTrial
from autotuner.tuning import t4
from autotuner.tuning.finals import standings
from autotuner.tuning.run.plan import Start
from autotuner.values.errors import InputError
from autotuner.values.known_points import KnownPoints
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict

FIRST = 8
"""Best points, at most, of the study that a person named, which are judged first."""
HINTED = 2
"""First points, at most, with which a branch begins."""
CHANGED = 1 / 3
"""Largest share of a point's parameters that moving it to the new space may change; else it is another point, and
dropped."""
LEAST = 10
"""Fewest measured points, valid in the new space, of a study that is worth knowing."""
MOST = 120
"""Known points of a study, at most: the better half of this number, and others evenly from the rest."""

THREADS, MODEL, CACHE = 0.5, 3.0, 0.5
"""What counts beside the problems: a doubling of the threads; a change of the device's model; of the cache policy."""

Numbers = tuple[float | None, ...]
Derived = tuple[Numbers, ...]


def start(store: Store | None, new: StudyRecord, space: Space, like: str | None = None) -> Start:
    """What the study `new` of `space` starts from: the known points of the nearest related study of the store, if any.

    `like` names the study to take them from instead, by name or unique prefix, or a file of T4 results; then its best
    points are judged first as well. A study that has judged something has started already, and gets nothing. Raises
    StoreError when there is no study `like`, and InputError when it has nothing to give.
    """
    if like is not None and like.endswith(".toml"):
        raise InputError(f"--from takes a study or FILE{t4.SUFFIX}; the problems of {like} go to --problems")
    is_file = like is not None and like.endswith(t4.SUFFIX)
    if store is None:
        if like is not None and not is_file:
            raise InputError(f"there is no store yet, and so no study {like!r}: leave out --from, or name the --store")
        return Start() if like is None else _start_of(like, space)
    named = None if like is None or is_file else queries.resolve_study(store, like)
    if any(each.name == new.name for each in queries.records(store)) and queries.judged_count(store, new.name) > 0:
        return Start()
    if like is not None and is_file:
        return _start_of(like, space)
    if named is None:
        found = (known_points(store, each.name, space) for each in related(store, new))
        return Start(known_points=next((each for each in found if each is not None), None))
    first = list(islice(elites(store, named, space), FIRST))
    if not first:
        raise InputError(f"{named} has no measured point that fits {space.name}; leave out --from")
    return Start(first, known_points(store, named, space))


def _start_of(file: str, space: Space) -> Start:
    judged, study = t4.read(Path(file))
    right = sorted((each for each in judged if math.isfinite(each.objective)), key=lambda each: each.objective)
    first = list(islice(_moved([each.point for each in right[: 2 * FIRST]], space), FIRST))
    if not first:
        raise InputError(f"{file} has no measured point that fits {space.name}; leave out --from")
    return Start(first, _known(file, judged, study, space))


# Studies ---------------------------------------------------------------------------------------------------------


def related(store: Store, new: StudyRecord) -> list[StudyRecord]:
    """The studies of the store that are related to `new`, itself left out: the nearest first, of those that are equally
    near the one that was made last.
    """
    kind = _kind(new)
    others = [each for each in reversed(queries.records(store)) if each.name != new.name and _kind(each) == kind]
    return sorted(others, key=lambda each: distance(each, new))


def distance(one: StudyRecord, new: StudyRecord) -> float:
    """How far a study is from a new one: 0 for the same problems on the same device. Of several problems of the new one
    the mean is taken, each by the problem of `one` that is nearest to it.
    """
    nearest = [min(op_of(problem).distance(problem, other) for other in one.problems) for problem in new.problems]
    threads = [int(each.device.facts.get("THREADS_ALLOWED", 1)) for each in (one, new)]
    devices = MODEL * (one.device.name != new.device.name) + THREADS * abs(math.log2(threads[0] / threads[1]))
    return sum(nearest) / len(nearest) + devices + CACHE * (one.cache != new.cache)


def _kind(study: StudyRecord) -> tuple[object, ...]:
    """What related studies have in common. The space is read as data: an old one need not be valid today."""
    return json.loads(study.space_document).get("family"), study.device.backend, {each.op for each in study.problems}


# What they give --------------------------------------------------------------------------------------------------


def known_points(store: Store, study: str, space: Space) -> KnownPoints | None:
    """What the study has judged, in the order of its ends, of the points that are valid in `space` as they are; what
    they lack is the default point's. None where fewer than LEAST of them have a latency. Raises StoreError.
    """
    return _known(study, queries.judged(store, study), queries.study(store, study), space)


def _known(name: str, judged: Sequence[JudgedTrial], study: StudyRecord | None, space: Space) -> KnownPoints | None:
    """The same from what was judged. `study` None: what the points amount to there cannot be told."""
    found: dict[int, float] = {}
    for trial in judged:
        place = _kept(trial.point, space)
        if place is not None:
            found.setdefault(place, trial.objective)
    if sum(map(math.isfinite, found.values())) < LEAST:
        return None
    points = _thinned(found)
    objectives = tuple(found[place] if math.isfinite(found[place]) else None for place in points)
    derived, expected = ((), ()) if study is None else _there(study, points, space)
    return KnownPoints(study=name, points=points, objectives=objectives, derived=derived, expected=expected)


def _there(study: StudyRecord, points: Sequence[int], space: Space) -> tuple[Derived, Numbers]:
    """What the points amount to on the study's problems and device, and the latency to expect of them there, by what
    the new space says of both; empty what cannot be told."""
    derived: list[Numbers] = [()] * len(points)
    expected: list[float | None] = [None] * len(points)
    for place, mine, inside in space.parts(np.array(points, dtype=np.int64)):
        branch, at = space.branches[place], np.flatnonzero(mine).tolist()
        of = branch.branch, study.device.facts, study.problems, branch.rows[inside]
        with suppress(KeyError, ExpressionError):
            for index, found in zip(at, map(_told, doublings(*of)), strict=True):
                derived[index] = found
        with suppress(KeyError, ExpressionError):
            latency = expected_latency(*of)
            for index, each in zip(at, () if latency is None else _told(latency), strict=False):
                expected[index] = each
    told = any(each is not None for each in expected)
    return tuple(derived) if any(derived) else (), tuple(expected) if told else ()


def _told(numbers: NDArray[np.float64]) -> Numbers:
    return tuple(None if math.isnan(each) else each for each in numbers.tolist())


def _thinned(found: Mapping[int, float]) -> tuple[int, ...]:
    """MOST of the points at most, in their order."""
    if len(found) <= MOST:
        return tuple(found)
    ranked = sorted(found, key=lambda place: found[place])
    best, rest = ranked[: MOST // 2], ranked[MOST // 2 :]
    count = MOST - len(best)
    kept = {*best, *(rest[i * len(rest) // count] for i in range(count))}
    return tuple(place for place in found if place in kept)


def elites(store: Store, study: str, space: Space) -> Iterator[dict[str, Value]]:
    """The best points of a study, moved onto `space`: distinct, the best first, those that are valid there as they are
    before those that had to be changed. Raises StoreError.

    Duplicates of a program are left out: they say nothing new.
    """
    entries = standings.leaderboard(store, study, 2 * FIRST)
    return _moved([entry.variant.point for entry in entries if entry.verdict != Verdict.DEDUPLICATED], space)


def _moved(points: Sequence[Mapping[str, Value]], space: Space) -> Iterator[dict[str, Value]]:
    """Points of another study on `space`, as `elites` says."""
    kept = [_kept(point, space) for point in points]
    changed = [mapped(point, space) for point, place in zip(points, kept, strict=True) if place is None]
    for place in dict.fromkeys([*kept, *changed]):
        if place is not None:
            yield space.point(place)


# First points -----------------------------------------------------------------------------------------------------


def first_points(space: Space, folder: Path, others: bool = False) -> dict[int, float]:
    """The places in `space` of what the kernel family in a folder ships for the problems that are nearest to its own,
    with the objectives to hope for: HINTED of each branch, the nearest first, and the branch first whose nearest
    promises most; with `others` none of the class of its own problems. What cannot be moved onto the space is left
    out. Raises KernelError for a file that is wrong.
    """
    shipped = read_first_points(folder, space.file.backend, space.file.problems[0].op)
    by_branch: list[dict[int, float]] = []
    for branch in space.branches:
        hints: dict[int, float] = {}
        for each in nearest(shipped.get(branch.impl, ()), space.file.problems, others):
            place = mapped({**each.on(space.facts), "IMPL": branch.impl}, space)
            if place is not None:
                hints.setdefault(place, each.hoped(space.file.problems))
            if len(hints) == HINTED:
                break
        by_branch.append(hints)
    by_branch.sort(key=lambda hints: next(iter(hints.values()), math.inf))
    return {place: objective for hints in by_branch for place, objective in hints.items()}


# Points ----------------------------------------------------------------------------------------------------------


def _kept(point: Mapping[str, Value], space: Space) -> int | None:
    """The place of a point in `space` as it is; of parameters that it lacks it has the default point's values."""
    place = space.index_of(point)
    found = space.branch_of(point["IMPL"])
    if place is None and found is not None and found[0].values.keys() - point.keys():
        place = mapped(point, space)
        if place is not None and not point.items() <= space.point(place).items():
            return None
    return place


def mapped(point: Mapping[str, Value], space: Space) -> int | None:
    """The place in `space` of the valid point that a point of another space is there.

    A number that the space does not have becomes the nearest that it has, any other value that of the default point,
    and what is not valid so becomes the nearest valid point of the same IMPL, of several the one that is expected to be
    the fastest. None where there is no such point, and where more than CHANGED of the parameters would not be what they
    were; those that the point lacks were nothing.
    """
    known = space.branch_of(point["IMPL"])
    if known is None:
        return None
    branch, first = known
    default = branch.point(branch.default_index)
    wished = {
        name: _nearest_value(point[name], values, default[name]) if name in point else default[name]
        for name, values in branch.values.items()
    }
    place = branch.moved(branch.row_of(wished))
    found = branch.point(place)
    changed = sum(found.get(name) != value for name, value in point.items())
    return first + place if changed <= CHANGED * (len(point) - 1) else None


def _nearest_value(value: Value, values: Sequence[Value], default: Value) -> Value:
    """A value of another space in this one's list: the same, or of numbers the nearest, the first of two."""
    if value in values:
        return value
    numbers = [each for each in values if isinstance(each, int)]
    if isinstance(value, int) and numbers:
        return min(numbers, key=lambda each: abs(each - value))
    return default
