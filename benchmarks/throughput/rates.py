"""How many variants a minute, where the time goes, what store and sampler cost.

    python -m benchmarks.throughput.rates cuda [--trials 240] [--json docs/results/throughput_cuda.json]
    python -m benchmarks.throughput.rates cpu [--trials 60] [--json docs/results/throughput_cpu.json]
    python -m benchmarks.throughput.rates store [--trials 5000] [--json docs/results/throughput_store.json]
    python -m benchmarks.throughput.rates devices --devices cuda:0,cuda:1 [--json FILE]
    python -m benchmarks.throughput.rates kernel-tuner [--configurations 96] [--dry-run] [--json FILE]

  cuda          a sweep over the mma part of sdpa_cuda
  cpu           a sweep over sdpa_cpu, against the time that its compiling, gate and timing need at least
  store         many trials on a backend that answers at once: what is left is the driver, the sampler and the store
  devices       a sweep on one device, one on two, four, ..., all, with every build in the cache
  kernel-tuner  Kernel Tuner and this program on the same configurations of the same source, one after the other

Each starts from an empty store and, but for `devices`, an empty build cache, both in a temporary folder. Keep the
machine quiet. In the JSON

  a_minute                judged variants, duplicates and rejects included, over the time from the first proposal to the
                          last outcome; `a_minute_with_calibration` counts from the start
  stages_s                wall seconds of each stage, added up over the variants; `compiler_s` of compiler runs alone
  device_idle_share_...   from the first build's submission to the last build's end: the share of time without a job
  median_ms               of the gate for variants that pass; of the measurement of those that racing stopped early
  time_left_at_a_quarter  what the estimate said when a quarter of the budget was judged, and what it took
  driver_wall_s           where the driver's one thread was: `waiting` for the executor, in the `store`, in `optuna`, in
                          the `sampler`, or the `rest`
  wall_over_needed        wall time over `compiler_s` divided by the CPUs, plus gate, measurement and soak

Kernel Tuner has the cupy backend, its default of seven iterations, verification by one numpy.allclose against torch,
and an empty kernel cache; its clock runs in `tune_kernel` alone. This program has the sampler `random` over exactly
these points, the whole gate and an empty build cache. Configurations that need more than 48 KiB of shared memory are
left out for both. One times warm and the other cold: the figures say nothing of each other's latencies.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.devices.environment import usable_cpus
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.executor import Executor
from autotuner.spaces.space import Space
from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Device
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from autotuner.values.versions import version_of
from benchmarks.provenance import command_line
from benchmarks.throughput import kernel_tuner_side as kernel_tuner
from benchmarks.throughput.sweep_watch import Ear, Stopwatch, WatchedExecutor, medians_ms, rounded, stage_sums
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

Document = dict[str, Any]


# A sweep ------------------------------------------------------------------------------------------------------------


@contextmanager
def fresh_cache() -> Iterator[Path]:
    """A folder for a store, and an empty build cache in it, while the block runs."""
    before = os.environ.get(config.CACHE)
    with tempfile.TemporaryDirectory(prefix="autotuner-throughput-") as folder:
        os.environ[config.CACHE] = str(Path(folder) / "cache")
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[config.CACHE]
            else:
                os.environ[config.CACHE] = before


def within(space: Space, points: Sequence[int]) -> Space:
    """The space of these points alone; its default is its own if that is among them, else the first."""
    default = space.point(space.default_index if space.default_index in points else points[0])
    chosen = []
    for place, _, inside in space.parts(np.array(sorted(points), dtype=np.int64)):
        branch = space.branches[place]
        document = branch.branch
        if branch.impl == default["IMPL"]:
            own = {name: value for name, value in default.items() if name != "IMPL"}
            document = document.model_copy(update={"default": own})
        if len(inside):
            chosen.append(dataclasses.replace(branch, branch=document, rows=branch.rows[inside]))
    chosen.sort(key=lambda branch: branch.impl != default["IMPL"])
    file = space.file.with_branches(branch.branch for branch in chosen)
    return dataclasses.replace(space, file=file, branches=tuple(chosen))


def of_impl(space: Space, impl: str) -> Space:
    """The part of the space with that IMPL."""
    branch, first = space.branch_of(impl) or (space.branches[0], 0)
    return within(space, list(range(first, first + len(branch))))


def sweep(
    store_path: Path,
    trials: int,
    executor: Executor,
    driver: Callable[[Store, Executor, Ear], Driver],
) -> Document:
    """Runs a sweep to its end and describes it. The driver's executor and listener are the ones it is given."""
    watch, ear = Stopwatch(), Ear(trials)
    watched = WatchedExecutor(executor, watch)
    started = time.monotonic()
    with Store.open(str(store_path)) as store, closing(watched), watch.watching():
        watch.turn()
        driver(store, watched, ear).run(Budget(trials=trials))
        watch.turn()
    whole = time.monotonic() - started
    # From the first proposal, which follows the calibration: to the last outcome.
    first = min((build[0] for build in watched.builds), default=started)
    seconds = ear.at[-1] - first
    judged = sum(outcome.verdict.judges for outcome in ear.outcomes)
    return {
        "judged": judged,
        "verdicts": {v.value: sum(o.verdict == v for o in ear.outcomes) for v in Verdict if _occurs(v, ear)},
        "seconds": seconds,
        "seconds_with_calibration": whole,
        "a_minute": 60 * judged / seconds,
        "a_minute_with_calibration": 60 * judged / whole,
        "stages_s": stage_sums(ear.outcomes),
        "compiler_s": sum(build[2] for build in watched.builds),
        "builds": len(watched.builds),
        "device_idle_share_while_building": watched.device_idle_share(),
        "driver_wall_s": dict(watch.wall),
        "driver_cpu_s": dict(watch.cpu),
        "median_ms": medians_ms(ear.outcomes),
        "time_left_at_a_quarter": ear.estimate(),
        "cpus": usable_cpus(),
        "answers": ear.columns(first),
        "driver_cpu_at_s": [at - ear.cpu_at[0] for at in ear.cpu_at],
    }


def _occurs(verdict: Verdict, ear: Ear) -> bool:
    return any(outcome.verdict == verdict for outcome in ear.outcomes)


def session_sweep(here: Workbench, folder: Path, trials: int, seed: int, sampler: str, executor: Executor) -> Document:
    """A sweep of a session's space."""

    def make(store: Store, watched: Executor, ear: Ear) -> Driver:
        return Driver(store, watched, here.plan(sampler, seed), ear)

    return sweep(folder / "studies.db", trials, executor, make)


# The steps ----------------------------------------------------------------------------------------------------------


def cuda(options: argparse.Namespace) -> Document:
    """The mma part of sdpa_cuda."""
    here = Workbench(load_space("sdpa_cuda"))
    here.space = of_impl(here.space, "mma")
    with fresh_cache() as folder:
        found = session_sweep(here, folder, options.trials, options.seed, "evolution", here.executor())
    return {**_machine(here), **found}


def cpu(options: argparse.Namespace) -> Document:
    """sdpa_cpu, and how far its wall time is from what its parts need: compiling on all CPUs, then the rest."""
    here = Workbench(load_space("sdpa_cpu"))
    with fresh_cache() as folder:
        found = session_sweep(here, folder, options.trials, options.seed, "evolution", here.executor())
    stages = found["stages_s"]
    on_device = stages["check"] + stages["measure"] + stages["soak"]
    needed = found["compiler_s"] / found["cpus"] + on_device
    return {**_machine(here), **found, "needed_s": needed, "wall_over_needed": found["seconds"] / needed}


def _machine(here: Workbench) -> Document:
    return {
        "device": here.device.name,
        "environment": here.device.environment,
        "problem": str(here.conditions.problems[0]),
        "valid_points": len(here.space),
    }


def truth(variant: Variant) -> Truth:
    """Of the made-up backend: latencies from one to some ten times the best, and every fiftieth variant wrong."""
    draw = random.Random(variant.digest)
    if draw.random() < 0.02:
        return Truth(fault=Verdict.INCORRECT)
    return Truth(us=10 * math.exp(abs(draw.gauss(0, 0.7))))


def store(options: argparse.Namespace) -> Document:
    """Trials on a backend that answers at once, on the points of the mma part for sm_90."""
    facts = {**architecture("sm_90").facts(), "CUBLAS": True, "TRITON": False}
    space = of_impl(Space.enumerate(load_space("sdpa_cuda"), facts), "mma")
    environment = {"optuna": version_of("optuna"), "python": sys.version.split()[0]}
    device = Device(backend="cuda", name="made up", facts=facts, environment=environment)
    executor = InlineExecutor(FakeLine(truth, noise=0.005), width=options.width)

    def make(store: Store, watched: Executor, ear: Ear) -> Driver:
        conditions = Conditions(problems=space.file.problems, threads=1, seeds=(1, 2, 3, 4))
        return Driver(store, watched, Plan(space, device, conditions, sampler=options.sampler, seed=options.seed), ear)

    with tempfile.TemporaryDirectory(prefix="autotuner-throughput-", dir=options.folder) as folder:
        found = sweep(Path(folder) / "studies.db", options.trials, executor, make)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    parts, judged = ("store", "optuna", "sampler"), found["judged"]
    ms = {part: 1e3 * found["driver_wall_s"].get(part, 0.0) / judged for part in parts}
    cpu_ms = {part: 1e3 * found["driver_cpu_s"].get(part, 0.0) / judged for part in parts}
    at = found.pop("answers")["at_s"]
    cpu = found.pop("driver_cpu_at_s")
    return {
        "device": device.name,
        "environment": environment,
        "sampler": options.sampler,
        "valid_points": len(space),
        "judged": judged,
        "cpus": found["cpus"],
        "ms_a_trial": {**ms, "together": sum(ms.values())},
        "cpu_ms_a_trial": {**cpu_ms, "together": sum(cpu_ms.values())},
        "driver_rest_ms_a_trial": 1e3 * found["driver_wall_s"]["rest"] / judged,
        "seconds_by_thousand": _by_thousand(at),
        "cpu_seconds_by_thousand": _by_thousand(cpu),
        "bytes": size,
    }


def _by_thousand(at: Sequence[float]) -> list[float]:
    """How long each whole thousand took, from when each of a series was done."""
    marks = [0.0, *(at[end - 1] for end in range(1000, len(at) + 1, 1000))]
    return [later - sooner for sooner, later in pairwise(marks)]


def devices(options: argparse.Namespace) -> Document:
    """Variants a minute on the first of the devices, on two of them, four, ..., all; nothing is left to compile."""
    rates: dict[str, Document] = {}
    with fresh_cache() as folder:
        here = Workbench(load_space("sdpa_cuda"), devices=options.devices)
        lanes = here.chosen.lanes
        here.space = of_impl(here.space, "mma")
        points = random.Random(options.seed).sample(range(len(here.space)), options.trials)
        here.space = within(here.space, points)
        here.build_all(range(len(here.space)))
        for count in dict.fromkeys((1, *(2**i for i in range(1, 8) if 2**i < len(lanes)), len(lanes))):
            place = folder / str(count)
            place.mkdir()
            here.chosen = here.chosen._replace(lanes=lanes[:count])
            rates[str(count)] = session_sweep(here, place, options.trials, options.seed, "random", here.executor())
    ratios = {count: rate["a_minute"] / rates["1"]["a_minute"] for count, rate in rates.items()}
    return {**_machine(here), "devices": len(lanes), "ratios": ratios, "by_devices": rates}


# Kernel Tuner -------------------------------------------------------------------------------------------------------


def compare(options: argparse.Namespace) -> Document:
    """Kernel Tuner and this program, on the same configurations."""
    if options.dry_run:
        return dry_run(options)
    here = Workbench(load_space("sdpa_cuda"))
    points = kernel_tuner.configurations(here.space, options.configurations, options.seed)
    theirs = kernel_tuner_in_a_process(options)
    here.space = within(here.space, [_index(here.space, point) for point in points])
    with fresh_cache() as folder:
        ours = session_sweep(here, folder, len(points), options.seed, "random", here.executor())
    return {
        **_machine(here),
        "configurations": len(points),
        "shared_memory_limit": kernel_tuner.SHARED_LIMIT,
        "kernel_tuner": {**theirs, "version": version_of("kernel-tuner"), "cupy": version_of("cupy-cuda13x")},
        "autotuner": ours,
        "ratio": ours["a_minute"] / theirs["a_minute"],
        "ratio_with_calibration": ours["a_minute_with_calibration"] / theirs["a_minute"],
    }


def _index(space: Space, point: kernel_tuner.Point) -> int:
    found = space.index_of(point)
    assert found is not None  # it was taken from this space
    return found


def _problem(here: Workbench) -> SdpaProblem:
    return cast(SdpaProblem, here.conditions.compiled_for)


def kernel_tuner_in_a_process(options: argparse.Namespace) -> Document:
    """Kernel Tuner in a process of its own, whose context on the device ends before ours begin."""
    arguments = ["--configurations", str(options.configurations), "--seed", str(options.seed)]
    command = [sys.executable, "-m", __spec__.name, "kernel-tuner-alone", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Document = json.loads(done.stdout.splitlines()[-1])
    return found


def kernel_tuner_alone(options: argparse.Namespace) -> Document:
    """Kernel Tuner's side: one line of JSON."""
    here = Workbench(load_space("sdpa_cuda"))
    assert isinstance(here.toolchain, CudaToolchain)
    points = kernel_tuner.configurations(here.space, options.configurations, options.seed)
    with kernel_tuner.headers(here.toolchain, here.family) as compiler_options:
        return kernel_tuner.judge(points, _problem(here), compiler_options)


def dry_run(options: argparse.Namespace) -> Document:
    """Everything up to the device, for `--arch`: the options, and the wrapper compiled for every configuration."""
    here = Workbench(load_space("sdpa_cuda"), options.arch)
    assert isinstance(here.toolchain, CudaToolchain)
    points = kernel_tuner.configurations(here.space, options.configurations, options.seed)
    with kernel_tuner.headers(here.toolchain, here.family) as compiler_options:
        log = kernel_tuner.compile_all(points, _problem(here), here.toolchain, compiler_options)
    return {"configurations": len(points), "compiled": sum(not each for each in log), "errors": [e for e in log if e]}


# The command line ---------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)

    def step(name: str, run: Callable[[argparse.Namespace], Document], trials: int) -> argparse.ArgumentParser:
        added = steps.add_parser(name)
        added.set_defaults(run=run)
        added.add_argument("--trials", type=int, default=trials)
        added.add_argument("--seed", type=int, default=0)
        added.add_argument("--json", type=Path)
        return added

    step("cuda", cuda, 240)
    step("cpu", cpu, 60)
    alone = step("store", store, 5000)
    alone.add_argument("--sampler", default="evolution")
    alone.add_argument("--width", type=int, default=17, help="variants in flight: 15 builders and two for a device")
    alone.add_argument("--folder", help="where the store is made; the system's temporary folder")
    step("devices", devices, 240).add_argument("--devices", required=True)
    for name, run in (("kernel-tuner", compare), ("kernel-tuner-alone", kernel_tuner_alone)):
        added = step(name, run, 0)
        added.add_argument("--configurations", type=int, default=96)
        added.add_argument("--dry-run", action="store_true", help="all but the device")
        added.add_argument("--arch", default="sm_90", help="of a dry run")
    options = parser.parse_args()
    found = rounded(options.run(options))
    command = command_line()
    when = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"command": command, "when": when, **found}
    if options.step == "kernel-tuner-alone":
        print(json.dumps(found))
        return
    text = json.dumps(document, indent=1)
    shown = {name: value for name, value in document.items() if not name.endswith("_at_s") and name != "environment"}
    print(json.dumps(shown, indent=1))
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
