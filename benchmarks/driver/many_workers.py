"""Workers of fake devices on one store of a PostgreSQL server: does the driver's share of a trial grow?

    python -m benchmarks.driver.many_workers [--trials 10000] [--workers 8] [--json PATH] [--hold]

Each worker is a process. It takes sweeps out of the queue until none is left, and drives each on a device that answers
at once; so what a trial takes is the driver's: proposing, Optuna, the store. That is CPU time, as there are more
workers than CPUs. With --hold it fails where a trial was lost or is there twice, or where a trial of a sweep's last
fifth takes the driver more than MOST times as long as one of the second fifth (the first has the start in it).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from platform import python_version
from typing import Any

from autotuner.devices.cuda.architecture import architecture
from autotuner.jobs import queue
from autotuner.spaces.space import Space
from autotuner.store import Store, queries, sweeps
from autotuner.tuning.run.driver import Budget, Driver, Event, Judged
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.workbench import load_space
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Device
from autotuner.values.sweep import State
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.throughput.rates import of_impl, truth
from tests.helpers import postgresql
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor

FIFTHS = 5
MOST = 1.5
LENGTHS = range(512, 4096, 64)
FACTS = {**architecture("sm_90").facts(), "CUBLAS": True, "TRITON": False}


def works(url: str, place: int) -> list[list[float]]:
    """A worker: of each sweep that it took, CPU seconds of its process when each trial was recorded."""
    found: list[list[float]] = []
    device = Device(backend="cuda", name=f"made up {place}", facts=FACTS, environment={"python": python_version()})
    with Store.open(url) as store:
        while True:
            due = (sweeps.claim(store, each.id, f"worker {place}") for each in sweeps.due(store))
            claim = next((each for each in due if each is not None), None)
            if claim is None:
                return found
            request, number = claim.sweep.request, claim.sweep.id
            space = of_impl(Space.enumerate(load_space("sdpa_cuda", problems=request.problems), FACTS), "mma")
            conditions = Conditions(problems=space.file.problems, threads=1, seeds=(1, 2, 3, 4))
            at = [time.process_time()]

            def hear(event: Event, at: list[float] = at) -> None:
                if isinstance(event, Judged):
                    at.append(time.process_time())

            executor = InlineExecutor(FakeLine(truth, noise=0.005), width=4)
            driver = Driver(store, executor, Plan(space, device, conditions, sampler="evolution", seed=number), hear)
            driver.run(Budget(trials=request.trials), claim.lease.beat)
            sweeps.work(store, number, at[-1] - at[0], driver.name)
            sweeps.settle(store, number, State.DONE)
            claim.lease.close()
            found.append(at)


def judged(url: str, workers: int, trials: int) -> dict[str, Any]:
    """What became of one sweep a worker, of as many trials together."""
    with Store.open(url) as store:
        for length in LENGTHS[:workers]:
            file = load_space("sdpa_cuda", problems=[f"(1,8,{length},64) float16 full"])
            queue.submit(store, queue.request_for(file, trials=trials // workers, finals=False))
        began = time.monotonic()
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            every = [each for found in pool.map(works, [url] * workers, range(workers)) for each in found]
        seconds = time.monotonic() - began
        counts = [queries.judged_count(store, name) for name in queries.names(store)]
        done = sum(each.state == State.DONE for each in sweeps.every(store))
    ms = [
        round(1e3 * statistics.mean((at[stop] - at[start]) / (stop - start) for at in every), 2)
        for start, stop in fifths(trials // workers)
    ]
    return {"seconds": round(seconds, 1), "sweeps_done": done, "judged": sum(counts), "driver_cpu_ms_by_fifth": ms}


def fifths(trials: int) -> list[tuple[int, int]]:
    """The trials of a sweep in equal parts."""
    marks = [trials * part // FIFTHS for part in range(FIFTHS + 1)]
    return list(pairwise(marks))


def unmet(found: dict[str, Any], trials: int, workers: int) -> list[str]:
    """What does not hold."""
    ms = found["driver_cpu_ms_by_fifth"]
    said = [(found["judged"] != trials // workers * workers, "trials are lost, or there twice")]
    said += [(found["sweeps_done"] != workers, "a sweep is not done")]
    said += [(ms[-1] > MOST * ms[1], f"a trial takes the driver {ms[-1]} ms at the end, {ms[1]} ms before")]
    return [words for fails, words in said if fails]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver.many_workers", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    found: dict[str, Any] = {"trials": options.trials, "workers": options.workers, "cpus": os.cpu_count()}
    found["load_before"] = os.getloadavg()[0]
    with postgresql.running() as server, suppress(KeyboardInterrupt):
        found |= judged(server.url(), options.workers, options.trials)
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps({**provenance(), **found}, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(found, options.trials, options.workers))


if __name__ == "__main__":
    main()
