"""Judges IMPL = wgmma on this GPU, races it against cuDNN and flash attention, and keeps the figures.

    python -m benchmarks.attention.wgmma STEP ... [--json docs/results/wgmma_attention.json] [--problems A,B] [--keep N]

Steps, each of which adds its part to the JSON file:
  judge   the points of POINTS on every problem of PROBLEMS: the whole gate, and the timing of the search
  races   the fastest --keep of each problem with an exact softmax, and the same with a speculative one, against cuDNN
          and against flash attention, cold and warm, interleaved; and in bfloat16
wgmma_trials.py adds what goes beyond. Needs a GPU of compute capability 9.0 that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.executor import Executor
from autotuner.run.jobs import Built, JudgeJob, RaceJob
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.outcome import Artifact, Heat, Outcome
from autotuner.values.variant import Value
from autotuner.values.verdict import Fault
from benchmarks.provenance import command_line

Point = dict[str, Value]
Figures = dict[str, Any]


def problem_of(batch: int, heads: int, length: int, head_dim: int, causal: bool, dtype: str = "float16") -> SdpaProblem:
    """A problem with as many keys as queries."""
    fields = {"batch": batch, "heads": heads, "seq_q": length, "seq_k": length, "head_dim": head_dim}
    return SdpaProblem.model_validate({**fields, "dtype": dtype, "causal": causal})


PROBLEMS = {
    "A": problem_of(1, 32, 2048, 128, causal=False),
    "Ac": problem_of(1, 32, 2048, 128, causal=True),
    "B": problem_of(2, 8, 2048, 64, causal=False),
    "Bc": problem_of(2, 8, 2048, 64, causal=True),
    "C": problem_of(4, 16, 1024, 64, causal=False),
    "Cc": problem_of(4, 16, 1024, 64, causal=True),
    "E": problem_of(1, 16, 768, 128, causal=False),
    "E7": problem_of(1, 16, 777, 128, causal=False),
    "Fc": problem_of(8, 8, 256, 128, causal=True),
    "G": problem_of(1, 8, 512, 128, causal=False),
    "H": problem_of(4, 32, 4096, 128, causal=False),
    "Hc": problem_of(4, 32, 4096, 128, causal=True),
}

COMMON: Point = {
    "IMPL": "wgmma",
    "CONSUMERS": 2,
    "BLOCK_N": 128,
    "STAGES": 2,
    "BLOCKS_SM": 1,
    "SCHEDULE": "dynamic",
    "OVERLAP": 1,
    "PING_PONG": 1,
    "Q_FROM": "shared",
    "Q_BUFFERS": 2,
    "EARLY_START": 0,
    "O_STAGING": "query",
    "SOFTMAX": "spec",
}
EARLY: Point = {"EARLY_START": 1, "SCHEDULE": "static"}
FOUR: Point = {"CONSUMERS": 4, "BLOCK_N": 64, "STAGES": 3}
ONE: Point = {"CONSUMERS": 1, "PING_PONG": 0, "BLOCKS_SM": 2}
PLAIN: Point = {"SCHEDULE": "tile", "Q_BUFFERS": 1, "O_STAGING": "own"}
SHARED: Point = {"Q_BUFFERS": 1, "O_STAGING": "query"}
CHANGES: dict[str, Point] = {
    "common": {},
    "early": EARLY,
    "early_no_turns": {**EARLY, "PING_PONG": 0},
    "early_dynamic": {"EARLY_START": 1},
    "early_registers": {**EARLY, "Q_FROM": "registers"},
    "early_144": {**EARLY, "BLOCK_N": 144},
    "early_112": {**EARLY, "BLOCK_N": 112},
    "own": {"Q_BUFFERS": 1, "O_STAGING": "own"},
    "static": {"SCHEDULE": "static"},
    "no_turns": {"PING_PONG": 0},
    "no_overlap": {"OVERLAP": 0},
    "plain": PLAIN,
    "plain_112": {**PLAIN, "BLOCK_N": 112},
    "four": FOUR,
    "four_early": {**FOUR, **EARLY},
    "four_deep": {**FOUR, "STAGES": 4},
    "four_static": {**FOUR, "SCHEDULE": "static"},
    "four_plain": {**FOUR, **PLAIN},
    "three": {"CONSUMERS": 3, "BLOCK_N": 112, "SCHEDULE": "static"},
    "one": ONE,
    "one_early": {**ONE, **EARLY},
    "one_early_registers": {**ONE, **EARLY, "Q_FROM": "registers"},
    "one_registers": {**ONE, "Q_FROM": "registers"},
    "one_registers_static": {**ONE, "Q_FROM": "registers", "SCHEDULE": "static"},
    "one_64": {**ONE, **PLAIN, "BLOCK_N": 64},
    "one_64_early": {**ONE, **EARLY, "BLOCK_N": 64},
    "one_64_static": {**ONE, **SHARED, "SCHEDULE": "static", "BLOCK_N": 64},
    "one_64_registers": {**ONE, **PLAIN, "BLOCK_N": 64, "Q_FROM": "registers"},
    "one_80": {**ONE, **PLAIN, **SHARED, "BLOCK_N": 80},
    "one_112": {**ONE, **PLAIN, **SHARED, "BLOCK_N": 112, "STAGES": 1},
    "one_128": {**ONE, **PLAIN, **SHARED, "STAGES": 1},
}
"""What sets a point apart from COMMON. Those that are no points of the space on a problem are left out there."""

SOFTMAXES = ("spec", "spec_rounded", "exact")
BLOCKS = 24


class Room:
    """The space on one problem, and the conditions to judge under there."""

    def __init__(self, problem: SdpaProblem) -> None:
        file = load_space("sdpa_cuda").only("wgmma")
        self.workbench = Workbench(file.model_copy(update={"problems": (problem,)}))
        self.problem = problem
        self._seeds = fresh_seeds()

    def points(self, wanted: str = "") -> dict[str, int]:
        """The points of CHANGES with each softmax that are valid here and whose label has this pattern."""
        found: dict[str, int | None] = {}
        for (name, change), how in product(CHANGES.items(), SOFTMAXES):
            if re.search(wanted, f"{name}/{how}"):
                found[f"{name}/{how}"] = self.workbench.space.index_of({**COMMON, **change, "SOFTMAX": how})
        return {label: index for label, index in found.items() if index is not None}

    def conditions(self, backend: str = "cudnn", cache: Literal["cold", "warm"] = "cold") -> Conditions:
        return Conditions(problems=(self.problem,), cache=cache, seeds=self._seeds, baselines=(backend,), max_blocks=24)


def opened(path: Path, workbench: Workbench) -> Figures:
    """The figures that are kept there, with where what is added comes from."""
    document: Figures = json.loads(path.read_text()) if path.exists() else {"commands": []}
    document["commands"].append(command_line())
    return document | {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": workbench.device.name,
        "environment": workbench.device.environment,
        "compiler": workbench.toolchain.version,
    }


def answer(executor: Executor, job: JudgeJob | RaceJob) -> object:
    executor.submit(job)
    while (done := executor.wait(60)) is None:
        pass
    return done[1]


def spread(us: tuple[float, ...]) -> Figures:
    """Microseconds: the median, the quartiles, the extremes."""
    low, _, high = quantiles(us, n=4)
    return {"median": median(us), "quartiles": [low, high], "least": min(us), "most": max(us)}


def judged(outcome: Outcome) -> Figures:
    """What became of a variant."""
    figures: Figures = {"verdict": str(outcome.verdict)}
    if outcome.fault is not None:
        figures["fault"] = f"{outcome.fault.code} {outcome.fault.case or ''}: {outcome.fault.detail}"
    if outcome.gate is not None:
        cases = [case for check in outcome.gate.checks for case in check.cases]
        figures["error_of_tolerance"] = max((_share(case.errors) for case in cases), default=None)
    if outcome.measurement is not None:
        timing = outcome.measurement.timings[0]
        figures |= {"us": spread(timing.variant_us), "baseline_us": spread(timing.baseline_us)}
        figures["ratio"] = 1 / median(b / v for v, b in zip(timing.variant_us, timing.baseline_us, strict=True))
    return figures


def _share(errors: Any) -> float:
    """The largest error of a case in units of its tolerance."""
    pairs = ("max_abs", "row_rel", "slice_rel")
    return max(float(getattr(errors, name) / getattr(errors, f"{name}_tol")) for name in pairs)


def judge(executor: Executor, name: str, room: Room, wanted: str) -> Figures:
    """The points of a problem whose labels have this pattern."""
    started = time.monotonic()
    points, conditions = room.points(wanted), room.conditions()
    rows: Figures = {}
    for label, built in zip(points, room.workbench.build_all(list(points.values())), strict=True):
        row = rows[label] = {"point": room.workbench.space.point(points[label])}
        if isinstance(built, Fault):
            row |= {"verdict": str(built.verdict), "fault": f"{built.code}: {built.detail}"}
            continue
        row["resources"] = built.resources
        whole = Built(artifact=built, seconds=0.0)
        outcome = answer(executor, JudgeJob(built=whole, conditions=conditions, soak="never"))
        row |= judged(outcome) if isinstance(outcome, Outcome) else {"fault": str(outcome)}
        say(name, label, row)
    print(f"{name}: {len(rows)} points in {time.monotonic() - started:.0f} s", flush=True)
    return {"problem": str(room.problem), "points": rows}


def say(name: str, label: str, row: Figures) -> None:
    if "us" in row:
        numbers = f"{row['us']['median']:8.2f} us  {row['ratio']:.3f} of {row['baseline_us']['median']:.2f}"
        print(f"{name:3} {label:34} {numbers}  error {row['error_of_tolerance']:.2f}", flush=True)
    else:
        print(f"{name:3} {label:34} {row.get('verdict')} {row.get('fault')}", flush=True)


# Races ----------------------------------------------------------------------------------------------------------------


def fastest(rows: Figures, keep: int) -> list[str]:
    """The fastest points of each kind of softmax."""
    timed = {label: row for label, row in rows["points"].items() if "us" in row}
    order = sorted(timed, key=lambda label: float(timed[label]["ratio"]))
    return [label for how in SOFTMAXES for label in [each for each in order if each.endswith(f"/{how}")][:keep]]


def race(executor: Executor, room: Room, artifacts: list[Artifact], backend: str, cache: Any) -> list[Figures]:
    """Each against a baseline, all interleaved."""
    heat = answer(
        executor, RaceJob(artifacts=tuple(artifacts), conditions=room.conditions(backend, cache), blocks=BLOCKS)
    )
    if not isinstance(heat, Heat):
        return [{"fault": str(heat)} for _ in artifacts]
    baseline = heat.baseline_us[0]
    figures: list[Figures] = []
    for place, us in enumerate(heat.us):
        if place in heat.faults:
            figures.append({"fault": str(heat.faults[place])})
            continue
        ratios = [variant / base for variant, base in zip(us[0], baseline, strict=True)]
        figures.append({"us": spread(us[0]), "baseline_us": spread(baseline), "ratio": spread(tuple(ratios))})
    return figures


def races(executor: Executor, name: str, room: Room, rows: Figures, keep: int) -> Figures:
    """The fastest of a problem against SDPA, and the same points in bfloat16."""
    labels, points = fastest(rows, keep), room.points()
    other = Room(room.problem.model_copy(update={"dtype": "bfloat16"}))
    found: Figures = {label: {} for label in labels}
    settings = ((room, "cudnn", "cold"), (room, "cudnn", "warm"), (room, "flash", "cold"), (other, "cudnn", "cold"))
    for here, backend, cache in settings:
        built = here.workbench.build_all([points[label] for label in labels])
        artifacts = [each for each in built if isinstance(each, Artifact)]
        assert len(artifacts) == len(built), built
        for label, row in zip(labels, race(executor, here, artifacts, backend, cache), strict=True):
            found[label][f"{here.problem.dtype} {backend} {cache}"] = row
            said = f"{row['us']['median']:8.2f} us, {row['ratio']['median']:.3f} of" if "us" in row else str(row)
            print(f"{name:3} {label:34} {here.problem.dtype} {said} {backend} {cache}", flush=True)
    return {"problem": str(room.problem), "races": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="+", choices=["judge", "races"])
    parser.add_argument("--json", type=Path, default=Path("docs/results/wgmma_attention.json"))
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--labels", default="", help="a pattern of the points to judge")
    parser.add_argument("--keep", type=int, default=2)
    options = parser.parse_args()
    rooms = {name: Room(PROBLEMS[name]) for name in options.problems.split(",")}
    document = opened(options.json, next(iter(rooms.values())).workbench)

    def keep(step: str, name: str, figures: Figures) -> None:
        document.setdefault(step, {})[name] = figures
        options.json.write_text(json.dumps(document, indent=1) + "\n")

    with closing(next(iter(rooms.values())).workbench.executor()) as executor:
        for name, room in rooms.items():
            if "judge" in options.steps:
                keep("judge", name, judge(executor, name, room, options.labels))
            if "races" in options.steps:
                keep("races", name, races(executor, name, room, document["judge"][name], options.keep))


if __name__ == "__main__":
    main()
