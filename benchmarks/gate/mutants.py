"""Judges the mutants and the right implementations of tests/mutants and keeps what the gate said of each.

    python -m benchmarks.gate.mutants OUT.json [--backend cpu|cuda] [--only TABLE ...] [--name NAME ...] [--lasting]
        [--dtype D] [--seeds N] [--jobs N] [--hold]

Adds to OUT.json, for the backend: each mutant with the codes expected and the code found, and how many were rejected,
those that no case shows counted in; for each right implementation how often it was rejected and its largest error in
units of its tolerance. Mutants that pass all that a search asks are judged as the variant to use is (`chosen_s` of
tests/mutants/expected.toml). Right implementations of head_dim 64 are judged under N sets of secret seeds,
others under one. On the CPU --jobs processes judge side by side, each on a CPU of its own; on CUDA --jobs builds go
ahead, and one process judges. With --dtype the part is "TABLE D", of that element type alone. With --lasting, for the
clock's on the CPU, a forward takes a tenth of a second, and the part is "TABLE lasting". With --name those of these
names are judged and nothing else. Sets of seeds keep their
references in the cache: about 70 MB for each dtype and mask on the CPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.devices import DEVICES, Wishes
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.devices.environment import usable_cpus
from autotuner.forge.build import build
from autotuner.forge.toolchain import Toolchain
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.tuning.workbench import toolchain_for
from autotuner.values.outcome import Device, Outcome
from benchmarks import holds
from benchmarks.provenance import command_line
from tests.helpers import preload
from tests.helpers.judging import cpu_line, cuda_line
from tests.mutants.expectations import SEEDS, TABLES, Backend, Expectation, Seeds, expectations, family, meets

CHUNK = 8


class Task(NamedTuple):
    """One implementation under one set of seeds."""

    expectation: Expectation
    seeds: Seeds


def device_of(backend: Backend) -> Device:
    """This machine's; of a CPU one thread."""
    return DEVICES[backend].choose(Wishes(threads=1 if backend == "cpu" else None)).device


def executor_for(toolchain: Toolchain, table: str) -> LocalExecutor:
    """Processes that judge the implementations of a table."""
    if isinstance(toolchain, CudaToolchain):
        cuda = cuda_line(toolchain, family(table))
        return LocalExecutor(cuda, preload.CUDA, overlap=True, jobs_per_process=50)
    assert isinstance(toolchain, CpuToolchain)
    cpu = cpu_line(toolchain, family(table))
    deadlines = Deadlines(check=10 if table == "systemic" else 60)
    return LocalExecutor(cpu, preload.CPU, deadlines)


# Judging ------------------------------------------------------------------------------------------------------------


def worst_ratio(outcome: Outcome) -> float | None:
    """The largest error in units of its tolerance; None where no case was judged."""
    checks = outcome.gate.checks if outcome.gate else ()
    return max((result.errors.worst_ratio for check in checks for result in check.cases), default=None)


def row(task: Task, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """What the gate said."""
    each, fault, worst = task.expectation, outcome.fault, worst_ratio(outcome)
    return {
        "name": each.name,
        "dtype": each.dtype,
        "causal": each.causal,
        "head_dim": each.head_dim,
        "seeds": task.seeds,
        "expected": each.codes,
        "found": fault.code if fault else "pass",
        "verdict": str(outcome.verdict),
        "as_expected": meets(outcome, each.codes),
        "detail": fault.detail if fault else "",
        "worst_ratio": worst if worst is None or worst < float("inf") else "inf",
        "seconds": round(seconds, 2),
    }


def judged(toolchain: Toolchain, tasks: list[Task]) -> Iterator[dict[str, Any]]:
    """Judges tasks of one table, one after another."""
    with closing(executor_for(toolchain, tasks[0].expectation.table)) as executor:
        for task in tasks:
            started = time.monotonic()
            outcome = task.expectation.judge(executor, task.seeds)
            yield row(task, outcome, time.monotonic() - started)


def judge_chunk(toolchain: Toolchain, tasks: list[Task]) -> list[dict[str, Any]]:
    """The same in one answer, for a pool."""
    return list(judged(toolchain, tasks))


def take_cpu(turn: Synchronized[int]) -> None:
    """Leaves this process, and all that it starts, one CPU: a variant is pinned to the first that it may use."""
    with turn.get_lock():
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[turn.value % len(cpus)]})
        turn.value += 1


def on_all_cpus(toolchain: Toolchain, tasks: list[Task], jobs: int) -> Iterator[dict[str, Any]]:
    """Judges side by side."""
    spawn = multiprocessing.get_context("spawn")
    chunks = [tasks[start : start + CHUNK] for start in range(0, len(tasks), CHUNK)]
    with ProcessPoolExecutor(jobs, spawn, initializer=take_cpu, initargs=(spawn.Value("i"),)) as pool:
        for rows in pool.map(partial(judge_chunk, toolchain), chunks):
            yield from rows


def on_the_gpu(toolchain: Toolchain, tasks: list[Task], jobs: int) -> Iterator[dict[str, Any]]:
    """Builds side by side, so that each is in the cache, then judges."""

    def one(each: Expectation) -> None:
        build(family(each.table), each.variant, each.problem, toolchain)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, dict.fromkeys(task.expectation for task in tasks)))
    yield from judged(toolchain, tasks)


# What is judged, and what it comes to -------------------------------------------------------------------------------


def seed_sets(count: int) -> list[Seeds]:
    """So many sets of secret seeds, the same in every run."""
    draw = random.Random("mutants").getrandbits
    return [SEEDS, *((draw(48), draw(48), draw(48), draw(48)) for _ in range(count - 1))][:count]


def tasks_of(table: str, options: argparse.Namespace) -> list[Task]:
    """What is to be judged; tasks that share their references lie side by side, since a process remembers some."""
    sets, wanted = seed_sets(options.seeds), options.name
    found = [
        each._replace(lasting=options.lasting)
        for group in expectations(options.backend, table)
        for each in group
        if options.dtype in (None, each.dtype) and (wanted is None or each.name in wanted)
        if not (options.lasting and each.brief)
    ]
    many = sets if table == "right" else [SEEDS]
    tasks = [Task(each, seeds) for each in found for seeds in (many if each.head_dim == 64 else many[:1])]
    return sorted(
        tasks, key=lambda task: (task.expectation.dtype, task.expectation.causal, task.expectation.head_dim, task.seeds)
    )


def planned_of(table: str, options: argparse.Namespace) -> dict[str, list[Task]]:
    """What is to be judged for the part of a table: those that no case shows are counted with the numeric ones."""
    names = ("numeric", "unseen") if table == "numeric" else (table,)
    found = {name: tasks_of(name, options) for name in names}
    return {name: tasks for name, tasks in found.items() if tasks}


def kills(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many of those that must not pass, or are unseen, were rejected, by dtype, and which were not."""
    wrong = [each for each in rows if "pass" not in each["expected"]]
    passed = [each for each in wrong if each["found"] == "pass"]
    masks = {False: "full", True: "causal"}
    return {
        "judged": Counter(each["dtype"] for each in wrong),
        "rejected": Counter(each["dtype"] for each in wrong if each["found"] != "pass"),
        "not_rejected": [f"{each['name']} {each['dtype']} {masks[each['causal']]}" for each in passed],
    }


def right_ones(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For each right implementation how often it was judged and rejected, and its worst error."""
    found = {}
    for name in sorted({each["name"] for each in rows}):
        mine = [each for each in rows if each["name"] == name]
        ratios = [each["worst_ratio"] for each in mine if isinstance(each["worst_ratio"], float)]
        rejected = sum(each["found"] != "pass" for each in mine)
        found[name] = {"judged": len(mine), "rejected": rejected, "worst_ratio": max(ratios, default=None)}
    return found


def summary(table: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The part of a table in the document. Of a mutant that no case shows nothing is expected."""
    unexpected = [each for each in rows if each["expected"] and not each["as_expected"]]
    if table == "right":
        rejected = sum(each["found"] != "pass" for each in rows)
        found = right_ones(rows)
        counts = {"judged": len(rows), "rejected": rejected, "implementations": found}
        return {**counts, "unexpected": unexpected, "rows": [compact(each) for each in rows]}
    return {**kills(rows), "unexpected": unexpected, "rows": rows}


def compact(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what does not vary among those that passed."""
    return {key: value for key, value in row.items() if key not in ("detail", "expected", "seconds", "as_expected")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", choices=TABLES, nargs="+", default=TABLES)
    parser.add_argument("--dtype", help="of this element type alone")
    parser.add_argument("--name", nargs="+", help="of these names alone")
    parser.add_argument("--lasting", action="store_true", help="on a problem with long forwards")
    parser.add_argument("--seeds", type=int, default=5, help="sets of secret seeds for the right implementations")
    parser.add_argument("--jobs", type=int, default=usable_cpus())
    holds.add_option(parser)
    options = parser.parse_args()
    backend: Backend = options.backend
    document = json.loads(options.out.read_text()) if options.out.exists() else {}
    planned = {table: planned_of(table, options) for table in options.only}
    for table, parts in planned.items():
        what = f"implementation of {table}" + (f" in {options.dtype}" if options.dtype else "")
        holds.measured([task.expectation.name for tasks in parts.values() for task in tasks], what)
    device = device_of(backend)
    toolchain = toolchain_for(device)
    judge = on_all_cpus if backend == "cpu" else on_the_gpu
    part = document.setdefault(backend, {})
    unmet: list[str] = []
    for table, parts in planned.items():
        started = time.monotonic()
        rows: list[dict[str, Any]] = []
        for name, tasks in parts.items():
            jobs = 1 if name == "clock" and backend == "cpu" else options.jobs  # some take the CPUs of others
            for each in judge(toolchain, tasks, jobs):
                rows.append(each)
                print(f"{table} {len(rows)}: {each['name']} {each['found']}", file=sys.stderr, flush=True)
        key = " ".join([table, *(["lasting"] if options.lasting else ()), *([options.dtype] if options.dtype else ())])
        part[key] = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command_line(),
            "device": device.name,
            "environment": device.environment,
            "compiler": toolchain.version,
            "seeds": options.seeds if table == "right" else 1,
            "seconds": round(time.monotonic() - started, 1),
            **summary(table, rows),
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        print(f"{key}: {len(rows)} judged, {len(part[key]['unexpected'])} not as expected")
        unmet += [f"{each['name']} {each['dtype']}: {each['found']}" for each in part[key]["unexpected"]]
    if options.hold:
        holds.require(unmet)


if __name__ == "__main__":
    main()
