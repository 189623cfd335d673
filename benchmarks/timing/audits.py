"""Audits of right kernels, none of which may be accused: the default and random points of a space, cold and warm.

    python -m benchmarks.timing.audits SPACE ... [--points 300] [--cache warm,cold] [--seconds S] [--seed N]
        [--json PATH [--more]] [--hold]

For every point: how much longer a forward takes on fresh inputs than on those of the call before (`kept`, relative to a
plain forward), what the copies in between add to it, at most, more than to the baseline (`hidden`, microseconds), and
what the audit took. The inputs of races change by exact symmetries between the samples; a point whose outputs do not
follow them is listed too. Plain forwards before the audit stand for those of a race. A point that is accused goes
through the gate: one that the gate rejects is not right, and is counted apart. With --seconds a space is left at the
first point after that time, its calibration apart. With --more the runs that PATH has stay there, a space gets the
points that it lacks in all of them, and what they accuse goes through the gate if it has not.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from autotuner.devices import versions
from autotuner.gate.references import names
from autotuner.race.arms import ArmError, Audited
from autotuner.race.audit import Raced, Times, looked_at
from autotuner.race.blocks import LongStep
from autotuner.race.calibrate import time_baselines
from autotuner.race.statistics import trimmed_interval
from autotuner.run.line import Line, LineFactory
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from autotuner.values.verdict import Fault
from benchmarks import holds
from benchmarks.provenance import command_line

RACED = 6
"""Plain samples of each side before an audit."""
BATCH = 16
"""Points that are built at a time. Those of a GPU are built while the ones before them are audited."""


@dataclass
class AuditRow:
    """One audit."""

    point: str
    problem: str
    us: float
    kept: float
    kept_low: float
    kept_high: float
    hidden_us: float
    seconds: float
    accused: str | None
    rejected: str | None = None
    """By the gate, of one that is accused: with which code."""


def points_of(bench: Workbench, wanted: int, seed: int) -> list[int]:
    """The default point and random ones."""
    count = len(bench.space)
    drawn = random.Random(seed).sample(range(count), min(wanted, count))
    return [bench.space.default_index, *(each for each in drawn if each != bench.space.default_index)][:wanted]


class Session:
    """The problems of a space under one cache policy, ready for audits."""

    def __init__(self, bench: Workbench, line: Line, cache: str) -> None:
        conditions = bench.conditions.model_copy(update={"cache": cache})
        devices = "cuda" if bench.device.backend == "cuda" else "cpu"
        callable_here = names(conditions.compiled_for, devices)
        self._tracks = line.tracks(conditions)
        timed = [time_baselines(track, callable_here, 5)[0] for track in self._tracks]
        self._pinned = [min(each, key=lambda one: one.median_us).backend for each in timed]

    def audits(self, point: str, built: Artifact) -> Iterator[AuditRow]:
        for track, baseline in zip(self._tracks, self._pinned, strict=True):
            yield audited(point, track, built, baseline)


def audits(
    bench: Workbench, caches: Sequence[str], points: Sequence[int], seconds: float
) -> Iterator[tuple[str, AuditRow]]:
    """The audits of a space, each with its cache policy. A point is built once for all policies."""
    line = LineFactory(bench.device, bench.toolchain, bench.family)()
    sessions = {cache: Session(bench, line, cache) for cache in caches}
    until = time.monotonic() + seconds
    for index, built in built_in_turn(bench, points):
        if time.monotonic() > until:
            return
        if isinstance(built, Fault):
            continue
        for cache, session in sessions.items():
            for row in session.audits(str(bench.space.point(index)), built):
                yield cache, replace(row, rejected=said_of(bench, line, built)) if row.accused else row


def said_of(bench: Workbench, line: Line, built: Artifact | Fault) -> str | None:
    """Why the gate rejects it, if it does."""
    fault = built if isinstance(built, Fault) else line.check(built, bench.conditions, lambda _: None).fault
    return None if fault is None else f"{fault.code}: {fault.detail}"


def gated(bench: Workbench, point: str) -> str | None:
    """The same of a point as it is kept. One that the space has no more cannot be asked about, and stays accused."""
    index = bench.space.index_of(literal_eval(point))
    if index is None:
        return None
    (built,) = bench.build_all([index])
    return said_of(bench, LineFactory(bench.device, bench.toolchain, bench.family)(), built)


def built_in_turn(bench: Workbench, points: Sequence[int]) -> Iterator[tuple[int, Artifact | Fault]]:
    """Each point with what was built of it."""
    batches = [points[first : first + BATCH] for first in range(0, len(points), BATCH)]
    with ThreadPoolExecutor(1) as beside:
        ahead = (
            beside.map(bench.build_all, batches) if bench.device.backend == "cuda" else map(bench.build_all, batches)
        )
        try:
            for some, built in zip(batches, ahead, strict=True):
                yield from zip(some, built, strict=True)
        finally:
            beside.shutdown(cancel_futures=True)


def raced_before(arms: Audited) -> Raced:
    """By the shortest of some plain forwards of each side."""
    other = arms.baseline
    variant, baseline = zip(*((arms.variant(), other()) for _ in range(RACED)), strict=True)
    return Raced(min(variant), min(baseline))


def audited(point: str, track: Any, built: Artifact, baseline: str) -> AuditRow:
    """One audit, with as many looks as in a sweep."""
    started = time.monotonic()
    try:
        arms = track.audit(built, baseline)
        before = time.monotonic()
        raced = raced_before(arms)
        started += time.monotonic() - before  # a sweep has it of the race
        times: Times = looked_at(arms, track, LongStep(lambda _: None, "audit"), raced)
        why = times.why(track.problem, track.gap)
        fault = arms.variant_audit.recheck() or arms.variant.recheck()
    except ArmError as error:
        detail = f"{error.fault.code}: {error.fault.detail}"
        return AuditRow(point, str(track.problem), 0, 0, 0, 0, 0, time.monotonic() - started, detail)
    if fault is not None:
        why = f"{fault.code}: {fault.detail}"
    kept = trimmed_interval(times.kept)
    seconds = time.monotonic() - started
    us = 1e6 * times.plain_s
    return AuditRow(point, str(track.problem), us, kept.mid, kept.low, kept.high, times.hidden_us(), seconds, why)


def summary(rows: Sequence[AuditRow]) -> dict[str, Any]:
    """What all audits of a space with one cache policy come to."""
    timed = [row for row in rows if row.us] or rows  # an audit that failed has no times
    return {
        "audits": len(rows),
        "points": len({row.point for row in rows}),
        "accused": [asdict(row) for row in rows if row.accused and not row.rejected],
        "rejected": [asdict(row) for row in rows if row.rejected],
        "kept": spread([row.kept for row in timed]),
        "hidden_us": spread([row.hidden_us for row in timed]),
        "hidden_share": max(row.hidden_us / row.us if row.us else 0 for row in timed),
        "seconds": median(row.seconds for row in rows),
    }


def spread(values: Sequence[float]) -> list[float]:
    """The least, the median and the greatest."""
    return [min(values), median(values), max(values)]


def told(name: str, cache: str, one: dict[str, Any]) -> Iterator[str]:
    """A summary, and the first accusations."""
    kept = [f"{100 * each:+.2f}" for each in one["kept"]]
    hidden = [f"{each:+.2f}" for each in one["hidden_us"]]
    yield (
        f"{name:24} {cache}: {one['audits']} audits, {len(one['accused'])} accused,"
        f" {len(one['rejected'])} more by the gate too; kept {kept} %; hidden {hidden} us,"
        f" at most {100 * one['hidden_share']:.0f} %; {one['seconds']:.2f} s each"
    )
    yield from (f"    {row['point']}: {row['accused']}" for row in one["accused"][:5])


class Kept:
    """What was found, written anew after every batch: what a run was cut off from is not lost with the rest."""

    def __init__(self, path: Path | None, seed: int, earlier: Sequence[dict[str, Any]] = ()) -> None:
        self._path, self._seed, self._earlier = path, seed, earlier
        self.rows: dict[str, dict[str, list[AuditRow]]] = {}
        self.device = ""

    def lacking(self, name: str, points: int, caches: Sequence[str]) -> dict[str, int]:
        """How many of so many points no earlier run has audited, of the cache policies that lack some."""
        found = [run["spaces"].get(name, {}) for run in self._earlier]
        left = {cache: points - sum(one[cache]["points"] for one in found if cache in one) for cache in caches}
        return {cache: count for cache, count in left.items() if count > 0}

    def settle(self, name: str, gated: Callable[[str], str | None]) -> None:
        """Asks the gate once about each accused point of earlier runs that it was not asked about, and counts those
        that it rejects apart, as those of later runs are."""
        ones = [one for run in self._earlier for one in run["spaces"].get(name, {}).values()]
        for one in ones:
            for row in (each for each in one["accused"] if "rejected" not in each):
                row["rejected"] = gated(row["point"])
            rejected = [each for each in one["accused"] if each["rejected"] is not None]
            one["accused"] = [each for each in one["accused"] if each["rejected"] is None]
            one["rejected"] = [*one.get("rejected", ()), *rejected]

    def accused(self, names: Sequence[str]) -> dict[str, int]:
        """Of these spaces in all runs: what an earlier one has found is not forgotten."""
        every = [*(run["spaces"] for run in self._earlier), self.spaces]
        found = {name: [one for spaces in every for one in spaces.get(name, {}).values()] for name in names}
        return {name: sum(len(one["accused"]) for one in several) for name, several in found.items()}

    def add(self, name: str, cache: str, row: AuditRow) -> None:
        self.rows.setdefault(name, {}).setdefault(cache, []).append(row)

    @property
    def spaces(self) -> dict[str, dict[str, Any]]:
        return {name: {cache: summary(rows) for cache, rows in found.items()} for name, found in self.rows.items()}

    def write(self) -> None:
        if self._path is None:
            return
        when = datetime.now(UTC).isoformat(timespec="seconds")
        run = {"command": command_line(), "when": when, "versions": versions(), "device": self.device}
        runs = [*self._earlier, *([{**run, "seed": self._seed, "spaces": self.spaces}] if self.rows else ())]
        beside = self._path.with_suffix(".part")
        beside.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
        beside.replace(self._path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="+", metavar="SPACE")
    parser.add_argument("--problem", action="append", default=[], help="in place of the spaces' own")
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--cache", default="warm,cold")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="of the points; another in every run"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--more", action="store_true", help="go on with what PATH has")
    holds.add_option(parser)
    return parser.parse_args()


def earlier(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The runs that are gone on with."""
    if not given.more or not given.json.exists():
        return []
    found: list[dict[str, Any]] = json.loads(given.json.read_text())["runs"]
    return found


def main() -> None:
    given = arguments()
    kept, caches = Kept(given.json, given.seed, earlier(given)), given.cache.split(",")
    for name in given.spaces:
        bench = Workbench(load_space(name, problems=given.problem))
        kept.device = bench.device.name
        kept.settle(name, partial(gated, bench))
        wanted = kept.lacking(name, given.points, caches)
        if not wanted:
            print(f"{name}: has its {given.points} points", flush=True)
            continue
        points = points_of(bench, max(wanted.values()), given.seed)
        for number, (cache, row) in enumerate(audits(bench, tuple(wanted), points, given.seconds)):
            kept.add(name, cache, row)
            if number % BATCH == 0:
                kept.write()
        for cache, one in kept.spaces.get(name, {}).items():
            print(*told(name, cache, one), sep="\n", flush=True)
    kept.write()
    if given.hold:
        silent = [
            f"{name}: no point was audited"
            for name in given.spaces
            if name not in kept.spaces and kept.lacking(name, given.points, caches)
        ]
        accused = [f"{name}: {count} accused" for name, count in kept.accused(given.spaces).items() if count]
        holds.require([*silent, *accused])


if __name__ == "__main__":
    main()
