"""Where the seconds of a heat go: a finalist's process of the finals, and one of the baseline alone.

    python -m benchmarks.timing.heat_seconds SPACE [--problem "(1,8,512,128) float16"] [--point "IMPL=mma WARPS_M=2"]
        [--heats 7] [--json docs/results/heat_seconds.json]

The heats are those of finals, by the product's own processes and for the variant at a point, the default one if none is
named. A row a kind of process, device and problem: the median seconds of every step as the driver hears of it, what the
heats' ratios differ by, and how small a difference two such finalists would show after so many heats each. Rows that
the file holds of other devices or problems stay.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median, stdev
from typing import Any

from autotuner.race.confirm import FINAL_BLOCKS, process_values, standing_of
from autotuner.run.executor import Executor, ask, sound_calibration
from autotuner.run.job_process import JobProcess
from autotuner.run.jobs import CalibrationJob, RaceJob, Result
from autotuner.tuning import workbench
from autotuner.tuning.finals.retrials import TRIES
from autotuner.values.conditions import TIE, Conditions, fresh_seeds
from autotuner.values.outcome import Artifact, Heat
from autotuner.values.ratio import combine
from benchmarks.provenance import provenance

STEPS = {
    "submit": "the last process ends, a new one is forked",
    "start": "the device is opened, the cage closed",
    "reference": "references are drawn",
    "check": "the gate's quick cases",
    "G1.smoke": "the gate's quick cases",
    "G2.quick": "the gate's quick cases",
    "G2": "the gate's quick cases",
    "measure": "the inputs are drawn",
    "loading": "the variant is loaded, its graphs made",
    "loading the": "the baseline is loaded, its graphs made",
    "racing": "samples",
    "G7.recheck": "outputs looked at, clocks compared",
    "audit": "the audit",
}
"""What is done from a step on, by how it is announced."""

FEWEST = 6
"""Heats from which on their differences are told."""

Steps = list[tuple[float, str]]


@contextmanager
def heard() -> Iterator[Steps]:
    """The steps that processes announce meanwhile, with their moments on the monotonic clock."""
    found: Steps = []
    note = JobProcess._note

    def noted(self: JobProcess, step: str) -> None:
        found.append((time.monotonic(), step))
        note(self, step)

    JobProcess._note = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        JobProcess._note = note  # type: ignore[method-assign]


def done(step: str) -> str:
    """What is done from that step on."""
    words = step.split(" ")
    return STEPS.get(" ".join(words[:2]), STEPS.get(words[0], step))


def one(executor: Executor, artifacts: tuple[Artifact, ...], conditions: Conditions) -> tuple[Heat, dict[str, float]]:
    """A heat as finals have it, and the seconds of what was done; one that somebody disturbed is run again."""
    for _ in range(TRIES):
        heat, seconds = _tried(executor, artifacts, conditions)
        if isinstance(heat, Heat) and not heat.faults:
            return heat, seconds
    raise SystemExit(f"a heat failed: {heat}")


def _tried(
    executor: Executor, artifacts: tuple[Artifact, ...], conditions: Conditions
) -> tuple[Result, dict[str, float]]:
    under = conditions.model_copy(update={"seeds": fresh_seeds()})
    judged = "before" if artifacts else None
    job = RaceJob(artifacts=artifacts, conditions=under, blocks=FINAL_BLOCKS, judged=judged, fresh=True)
    with heard() as steps:
        began = time.monotonic()
        found = ask(executor, job)
        ended = time.monotonic()
    seconds: dict[str, float] = {}
    marks = [(began, "submit"), *steps, (ended, "")]
    for (since, step), (until, _) in pairwise(marks):
        seconds[done(step)] = seconds.get(done(step), 0.0) + until - since
    return found, seconds


def row(kind: str, all_seconds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The medians, without the first heat: it starts the server of the processes, or finds files on the disk."""
    later = all_seconds[1:] or all_seconds
    names = dict.fromkeys(name for each in later for name in each)
    return {
        "process": kind,
        "heats": len(later),
        "seconds": {name: round(median(each.get(name, 0.0) for each in later), 3) for name in names},
        "whole": round(median(sum(each.values()) for each in later), 3),
    }


def resolved(heats: Sequence[Heat]) -> dict[str, float]:
    """What the ratios differ by from process to process, relative; and the resolution of finals of two finalists that
    have as many heats each and differ so."""
    (values,) = process_values(heats, combine("mean")).values()
    if len(values) < FEWEST:
        return {}
    halves = {"one": values[: len(values) // 2], "other": values[len(values) // 2 :]}
    found = standing_of(halves, TIE, is_last=True).resolution
    return {"deviation": round(stdev(values), 5), "resolution": round(found or float("inf"), 4)}


def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a finalist and of the baseline alone."""
    here = workbench.Workbench(workbench.load_space(options.space, None, [options.problem] if options.problem else []))
    point = here.space.default_index
    if options.point:
        asked = here.space.index_of(workbench.point_of(here.space, options.point))
        if asked is None:
            raise SystemExit(f"{options.point}: no valid point")
        point = asked
    (artifact,) = here.build_all([point])
    if not isinstance(artifact, Artifact):
        raise SystemExit(f"it cannot be built: {artifact.detail}")
    with closing(here.executor()) as executor:
        began = time.monotonic()
        found = sound_calibration(ask(executor, CalibrationJob(conditions=here.conditions)))
        calibration_s = time.monotonic() - began
        pinned = {"baselines": found.baselines, "ceilings": found.ceilings}
        conditions = here.conditions.model_copy(update=pinned)
        heats = [one(executor, (artifact,), conditions) for _ in range(options.heats + 1)]
        alone = [one(executor, (), conditions)[1] for _ in range(3)]
    of = {
        "device": here.device.name,
        "problem": str(here.conditions.compiled_for),
        "variant": str(artifact.variant),
        "baseline": found.baselines[0],
        "calibration_s": round(calibration_s, 2),
    }
    finalist = {**of, **row("finalist", [seconds for _, seconds in heats])}
    return [{**finalist, **resolved([heat for heat, _ in heats[1:]])}, {**of, **row("baseline alone", alone)}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space")
    parser.add_argument("--problem")
    parser.add_argument("--point", help="IMPL and parameters; what is left out is near the default point")
    parser.add_argument("--heats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    made = provenance()
    rows = [{**each, "command": made["command"], "when": made["when"]} for each in measured(options)]
    for each in rows:
        print(json.dumps(each, indent=1))
    if options.json is not None:
        held = json.loads(options.json.read_text())["rows"] if options.json.exists() else []
        new = {(each["device"], each["problem"]) for each in rows}
        kept = [each for each in held if (each["device"], each["problem"]) not in new]
        options.json.write_text(json.dumps({"rows": [*kept, *rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
