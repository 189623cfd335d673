"""Audits of right kernels, none of which may be accused: the default and random points of a space, cold and warm.

    python -m benchmarks.timing.audits SPACE ... [--points 300] [--cache warm,cold] [--seconds S] [--json PATH] [--hold]

For every point: how much longer a forward takes on fresh inputs than on those of the call before (`kept`, relative to
a plain forward), what the copies in between add to it more than to the baseline (`hidden`, microseconds), and what the
audit took. The inputs of races change by exact symmetries between the samples; a point whose outputs do not follow
them is listed too. With --seconds it stops at the first point after that time.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from autotuner.devices.versions import versions
from autotuner.gate.references import names
from autotuner.measure.arms import ArmError
from autotuner.measure.audit import Times, looked_at
from autotuner.measure.calibrate import fastest, time_baselines
from autotuner.measure.statistics import trimmed_interval
from autotuner.run.line import LineFactory
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from autotuner.values.verdict import Fault
from benchmarks import holds
from benchmarks.provenance import command_line

BATCH = 16
"""Points that are built at a time."""


@dataclass
class Row:
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


def points_of(bench: Workbench, wanted: int) -> list[int]:
    """The default point and random ones, other ones in every run."""
    count = len(bench.space)
    drawn = random.sample(range(count), min(wanted, count))
    return [bench.space.default_index, *(each for each in drawn if each != bench.space.default_index)][:wanted]


def audits(bench: Workbench, cache: str, wanted: int, until: float) -> Iterator[Row]:
    """Of one space with one cache policy."""
    line = LineFactory(bench.device, bench.toolchain, bench.family)()
    conditions = bench.conditions.model_copy(update={"cache": cache})
    tracks = line.tracks(conditions)
    pinned = {}
    for track in tracks:
        devices = "cuda" if bench.device.backend == "cuda" else "cpu"
        pinned[track.problem] = fastest(time_baselines(track, names(conditions.compiled_for, devices), 5))
    chosen = points_of(bench, wanted)
    for first in range(0, len(chosen), BATCH):
        some = chosen[first : first + BATCH]
        for index, built in zip(some, bench.build_all(some), strict=True):
            if isinstance(built, Fault) or time.monotonic() > until:
                continue
            for track in tracks:
                yield audited(str(bench.space.point(index)), track, built, pinned[track.problem])


def audited(point: str, track: Any, built: Artifact, baseline: str) -> Row:
    """One audit, with as many looks as in a sweep."""
    started = time.monotonic()
    try:
        arms = track.audit(built, baseline)
        times: Times = looked_at(arms, track)
        why = times.why(track.problem, track.gap, times.raced)
        arms.variant_audit(fresh=True)
        fault = arms.variant_audit.recheck() or arms.variant.recheck()
    except ArmError as error:
        detail = f"{error.fault.code}: {error.fault.detail}"
        return Row(point, str(track.problem), 0, 0, 0, 0, 0, time.monotonic() - started, detail)
    if fault is not None:
        why = f"{fault.code}: {fault.detail}"
    kept = trimmed_interval(times.kept)
    seconds = time.monotonic() - started
    us = 1e6 * median(times.plain)
    return Row(point, str(track.problem), us, kept.mean, kept.low, kept.high, times.hidden_us, seconds, why)


def summary(rows: list[Row]) -> dict[str, Any]:
    """What all audits of a space come to."""
    kept, hidden = [row.kept for row in rows], [row.hidden_us for row in rows]
    return {
        "audits": len(rows),
        "accused": [asdict(row) for row in rows if row.accused],
        "kept": [min(kept), median(kept), max(kept)],
        "hidden_us": [min(hidden), median(hidden), max(hidden)],
        "hidden_share": max(row.hidden_us / row.us for row in rows if row.us),
        "seconds": median(row.seconds for row in rows),
        "rows": [asdict(row) for row in rows],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="+", metavar="SPACE")
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--cache", default="warm,cold")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    found: dict[str, Any] = {}
    for name in given.spaces:
        bench = Workbench(load_space(name))
        until = time.monotonic() + given.seconds
        for cache in given.cache.split(","):
            rows = list(audits(bench, cache, given.points, until))
            if not rows:
                continue
            found[f"{name} {cache}"] = one = summary(rows)
            figures = [f"{100 * each:+.2f}" for each in one["kept"]]
            hidden = [f"{each:+.2f}" for each in one["hidden_us"]]
            accused = len(one["accused"])
            print(
                f"{name:24} {cache}: {len(rows)} audits, {accused} accused; kept {figures} %; hidden {hidden} us,"
                f" at most {100 * one['hidden_share']:.0f} %; {one['seconds']:.2f} s each",
                flush=True,
            )
            for row in one["accused"][:5]:
                print(f"    {row['point']}: {row['accused']}")
    if given.json is not None:
        document = {"command": command_line(), "versions": versions(), "device": bench.device.name, "spaces": found}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    if given.hold:
        holds.require([f"{name}: {len(one['accused'])} accused" for name, one in found.items() if one["accused"]])


if __name__ == "__main__":
    main()
