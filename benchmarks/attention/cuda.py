"""Tunes the CUDA implementations on this GPU and keeps the figures.

    python -m benchmarks.attention.cuda STEP ... [--store PATH] [--json docs/results/cuda_attention.json] [--trials N]

Steps, each of which adds its part to the JSON file and goes on from what the store holds:
  mission   a sweep over all four implementations at (1,8,512,64), and one over each of scalar, cublas and wmma alone
  shapes    for each problem of PROBLEMS, a sweep that starts from the best points of those sweeps; then the best of
            each implementation against every SDPA backend, cold and warm, interleaved in one fresh process
  planted   a sweep among variants that hang, fault, race or ask for too much, and right ones (tests/mutants)
`shapes` takes a part of PROBLEMS with --from and --count; without the store of `mission` it starts from the points that
the JSON file holds. Needs a GPU that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.race.statistics import median_interval
from autotuner.race.tie import logs
from autotuner.run.executor import Executor
from autotuner.run.jobs import CalibrationJob, RaceJob
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Budget, Driver, Event, Judged
from autotuner.tuning.run.plan import Point, Start
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Calibration, Heat, Outcome
from autotuner.values.problem import Problem
from benchmarks.provenance import ROOT, command_line
from benchmarks.throughput.rates import of_impl

IMPLS = ("scalar", "cublas", "wmma", "mma")
MISSION = (1, 8, 512, 64)
SHAPES = (
    (1, 2, 64, 64),
    (1, 4, 128, 64),
    (2, 2, 64, 64),
    MISSION,
    (1, 8, 512, 128),
    (2, 8, 2048, 64),
    (4, 16, 1024, 64),
    (1, 32, 2048, 128),
)
BLOCKS = 24


def problem_of(shape: tuple[int, int, int, int], causal: bool) -> Problem:
    """A problem of shape (batch, heads, length, head_dim) in float16."""
    batch, heads, length, head_dim = shape
    return SdpaProblem(
        batch=batch, heads=heads, seq_q=length, seq_k=length, head_dim=head_dim, dtype="float16", causal=causal
    )


PROBLEMS = tuple(problem_of(shape, causal) for shape in SHAPES for causal in (False, True))


class Ear:
    """Hears a sweep: counts what it judges and shows how far it is."""

    def __init__(self, label: str, trials: int) -> None:
        self._label, self._trials = label, trials
        self.judged = 0

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Judged):
            return
        self.judged += 1
        if event.judged % 20 == 0:
            best = "none" if event.best is None else f"{event.best:+.3f}"
            print(f"{self._label}: {event.judged}/{self._trials}, best ln ratio {best}", file=sys.stderr, flush=True)


def sweep(
    store: Store, workbench: Workbench, label: str, trials: int, first: list[Point] | None = None
) -> dict[str, Any]:
    """Runs a sweep, or goes on with it; its figures."""
    started, ear = time.monotonic(), Ear(label, trials)
    with closing(workbench.executor()) as executor:
        driver = Driver(store, executor, workbench.plan(start=Start(first=first or ())), ear)
        driver.run(Budget(trials=trials))
    seconds = time.monotonic() - started
    summary = standings.summary(store, driver.name)
    return {
        "study": driver.name,
        "space": workbench.space.name,
        "problem": str(workbench.conditions.problems[0]),
        "valid_points": len(workbench.space),
        "judged": summary.judged,
        "judged_in_this_run": ear.judged,
        "seconds": round(seconds, 1),
        "verdicts": {str(verdict): count for verdict, count in summary.by_verdict.items()},
        "rejected": summary.by_fault,
    }


def restricted(workbench: Workbench, impl: str) -> Workbench:
    """The workbench over the points of one implementation alone."""
    workbench.space = of_impl(workbench.space, impl)
    return workbench


def right_ones(store: Store, study: str) -> dict[str, list[Outcome]]:
    """The outcomes with a latency of each implementation, the fastest first."""
    outcomes = [o for o in dict(store.outcomes(study)).values() if o.verdict.has_latency and o.measurement]
    outcomes.sort(key=lambda outcome: outcome.objective)
    return {impl: [o for o in outcomes if o.variant.impl == impl] for impl in IMPLS}


def merged(store: Store, studies: list[str]) -> dict[str, list[Outcome]]:
    """The outcomes of several studies of one problem."""
    found = [right_ones(store, study) for study in studies]
    return {impl: sorted((o for f in found for o in f[impl]), key=lambda o: o.objective) for impl in IMPLS}


def microseconds(outcome: Outcome) -> float:
    """The search's estimate of one forward."""
    assert outcome.measurement is not None
    return median(outcome.measurement.timings[0].variant_us)


def sensitivity(found: dict[str, list[Outcome]]) -> dict[str, Any]:
    """How far apart the best and the worst right variants of each implementation are."""
    return {
        impl: {
            "right": len(outcomes),
            "best_us": min(map(microseconds, outcomes)),
            "worst_us": max(map(microseconds, outcomes)),
            "best": outcomes[0].variant.point,
        }
        for impl, outcomes in found.items()
        if outcomes
    }


def mission(store: Store, trials: int) -> dict[str, Any]:
    """The sweeps at the mission shape."""
    space = load_space("sdpa_cuda")
    sweeps = [sweep(store, Workbench(space), "all", trials)]
    for impl in ("scalar", "cublas", "wmma"):
        sweeps.append(sweep(store, restricted(Workbench(space), impl), impl, max(12, trials // 6)))
    return {"sweeps": sweeps, "sensitivity": sensitivity(merged(store, [each["study"] for each in sweeps]))}


# The best of each against every SDPA backend --------------------------------------------------------------------------


def run(executor: Executor, job: RaceJob | CalibrationJob) -> object:
    executor.submit(job)
    while (done := executor.wait(60)) is None:
        pass
    return done[1]


def race(
    executor: Executor, conditions: Conditions, outcome: Outcome, backend: str, cache: Literal["cold", "warm"]
) -> Any:
    """t_SDPA / t_variant with its interval, and microseconds of both."""
    assert outcome.artifact is not None
    pinned = {"baselines": (backend,), "baseline_us": (), "cache": cache}
    here = conditions.model_copy(update=pinned)
    heat = run(executor, RaceJob(artifacts=(outcome.artifact,), conditions=here, blocks=BLOCKS))
    if not isinstance(heat, Heat) or heat.faults:
        return {"fault": str(heat)}
    ratio = median_interval(logs(heat, 0)[0])
    return {
        "variant_us": median(heat.us[0][0]),
        "sdpa_us": median(heat.baseline_us[0]),
        "ln_ratio": [ratio.low, ratio.mid, ratio.high],
    }


def races(workbench: Workbench, best: dict[str, Outcome]) -> dict[str, Any]:
    """Every implementation's best against every SDPA backend that takes the problem, in one process."""
    figures: dict[str, Any] = {impl: {} for impl in best}
    with closing(workbench.executor()) as executor:
        calibration = run(executor, CalibrationJob(conditions=workbench.conditions))
        assert isinstance(calibration, Calibration), calibration
        backends = [timing.backend for timing in calibration.timings]
        for cache in ("cold", "warm"):
            for impl, outcome in best.items():
                figures[impl][cache] = {b: race(executor, workbench.conditions, outcome, b, cache) for b in backends}
    return figures


def shape(
    store: Store, problem: Problem, sweeps: list[dict[str, Any]], first: list[Point], trials: int
) -> dict[str, Any]:
    """One problem: a sweep from `first`, then the races."""
    file: SpaceFile = load_space("sdpa_cuda")
    workbench = Workbench(file.model_copy(update={"problems": (problem,)}))
    figures = sweep(store, workbench, str(problem), trials, first)
    found = merged(store, [figures["study"], *(s["study"] for s in sweeps if s["problem"] == str(problem))])
    best = {impl: outcomes[0] for impl, outcomes in found.items() if outcomes}
    return {**figures, "sensitivity": sensitivity(found), "races": races(workbench, best)}


def first_points(store: Store, studies: list[str], each: int) -> list[Point]:
    """The best of each implementation in the mission's sweeps."""
    found = merged(store, studies)
    return [outcome.variant.point for impl in IMPLS for outcome in found[impl][:each]]


def kept_points(document: dict[str, Any], problem: Problem) -> list[Point]:
    """The best of each implementation in the figures that are kept, for this problem before those for the mission."""
    kept = [document["shapes"].get(str(problem), {}), document["mission"]]
    points = [each["best"] for part in kept for each in part.get("sensitivity", {}).values()]
    return list({json.dumps(point, sort_keys=True): point for point in points}.values())


def planted(store: Store) -> dict[str, Any]:
    """The sweep among planted defects: what became of each."""
    workbench = Workbench(load_space(str(ROOT / "tests" / "mutants" / "planted.toml")))
    figures = sweep(store, workbench, "planted", len(workbench.space))
    modes: dict[str, list[str]] = {}
    for outcome in dict(store.outcomes(figures["study"])).values():
        code = f"{outcome.verdict} {outcome.fault.code}" if outcome.fault else str(outcome.verdict)
        modes.setdefault(str(outcome.variant.parameters["MUTANT"]), []).append(code)
    return {**figures, "modes": modes}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="+", choices=["mission", "shapes", "planted"])
    parser.add_argument("--store", default="cuda_attention.db")
    parser.add_argument("--json", type=Path, default=Path("docs/results/cuda_attention.json"))
    parser.add_argument("--trials", type=int, default=320, help="of the sweep over all four implementations")
    parser.add_argument("--shape-trials", type=int, default=60, help="of the sweep at each problem")
    parser.add_argument("--from", type=int, default=0, dest="start", help="the first of PROBLEMS to do")
    parser.add_argument("--count", type=int, default=len(PROBLEMS))
    options = parser.parse_args()
    document = json.loads(options.json.read_text()) if options.json.exists() else {"commands": [], "shapes": {}}

    def keep() -> None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")

    workbench = Workbench(load_space("sdpa_cuda"))
    document |= {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": workbench.device.name,
        "environment": workbench.device.environment,
        "compiler": workbench.toolchain.version,
    }
    document["commands"].append(command_line())
    with closing(Store.open(options.store)) as store:
        if "mission" in options.steps:
            document["mission"] = mission(store, options.trials)
            keep()
        if "planted" in options.steps:
            document["planted"] = planted(store)
            keep()
        if "shapes" in options.steps:
            sweeps = document["mission"]["sweeps"]
            known = {summary.name for summary in standings.studies(store)}
            here = known.issuperset(each["study"] for each in sweeps)
            for problem in PROBLEMS[options.start : options.start + options.count]:
                kept = kept_points(document, problem)
                first = first_points(store, [each["study"] for each in sweeps], each=4) if here else kept
                document["shapes"][str(problem)] = shape(store, problem, sweeps, first, options.shape_trials)
                keep()
    print(json.dumps(document.get("mission", {}).get("sensitivity", {}), indent=1))


if __name__ == "__main__":
    main()
