"""One budget over several problems, given to what promises most, against equal shares; docs/sweeps.md.

    python -m benchmarks.search.sweep_sets SPACE.json.gz ... [--seeds 10] [--each 40] [--jobs 2] [--json PATH] [--hold]

For each seed kept landscapes are searched with equal shares, cold; with equal shares, each starting from what its
nearest relative before it has measured; and as sweep sets (autotuner/sweeps/shares.py) of several budgets, which start
the same way. What counts is the geometric mean over the spaces of t_optimum / t_best at the end. With --hold the exit
code is 1 unless a set with 70 % of the trials reaches what equal shares, cold, reach with all.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # searches run side by side

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotuner.store import Store
from autotuner.sweeps.shares import TURN, Share, first_trials, next_member
from autotuner.tuning.driver import Budget, Driver
from autotuner.tuning.plan import Plan, Start
from autotuner.tuning.study_identity import study_record
from autotuner.tuning.transfer import start
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Device
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.search.replay_run import Clock, VirtualExecutor, started_at_random
from benchmarks.search.replay_spaces import PROBLEM, RECORDED, Recorded, read

Floats = NDArray[np.float64]
SAMPLER = "evolution"
BUDGETS = (0.5, 0.7, 1.0)
"""Of sets, in trials of equal shares."""
AIM = 0.7
"""The budget with which a set should reach what equal shares reach."""
SPACES: list[Recorded] = []
"""Read before the processes are forked, which have them for nothing."""


class Task(NamedTuple):
    """The searches of one seed."""

    seed: int
    each: int


class Member:
    """A recorded space that is searched in turns."""

    def __init__(self, recorded: Recorded, seed: int, store: Store) -> None:
        self._recorded, self._seed, self._store = recorded, seed, store
        self.executor = VirtualExecutor(recorded, 1, Clock(charge=False), 0.0, sys.maxsize)
        self._space = started_at_random(recorded.space, seed)

    def search(self, trials: int, warm: bool, promised: Callable[[float | None], None] = lambda _: None) -> None:
        """Judges until the study has so many trials."""
        space = self._space
        conditions = Conditions(
            problems=space.file.problems or (PROBLEM,), seeds=(1, 2, 3, 4), min_blocks=1, max_blocks=1
        )
        device = Device(backend="cuda", name=RECORDED, facts=space.facts, environment={})
        named: dict[str, Any] = {"sampler": SAMPLER, "seed": self._seed, "built_from": self._recorded.name}
        record = study_record(space, device, conditions, **named)
        found = start(self._store, record, space) if warm else Start()
        plan = Plan(space, device, conditions, start=found, **named)
        Driver(self._store, self.executor, plan).run(Budget(trials=trials), promised=promised)

    @property
    def worst(self) -> float:
        """Of the slowest point."""
        return float(np.log(np.nanmax(self._recorded.ms) / np.nanmin(self._recorded.ms)))

    @property
    def regret(self) -> Floats:
        """(n,): ln(t_best / t_optimum) after each trial; before anything was measured, of the slowest point."""
        ms = self._recorded.ms
        rows = self.executor.trace().rows
        best = np.fmin.accumulate(np.fmin(ms[rows], np.nanmax(ms)))
        return np.asarray(np.log(best / np.nanmin(ms)), dtype=np.float64)


def equal(task: Task, warm: bool) -> Floats:
    """(each,): the mean regret over the spaces after each round of equal shares."""
    with tempfile.TemporaryDirectory() as folder, closing(Store.open(str(Path(folder) / "studies.db"))) as store:
        members = [Member(recorded, task.seed, store) for recorded in SPACES]
        for member in members:
            member.search(task.each, warm)
        regrets = np.stack([_at_least(member.regret, task.each) for member in members])
        return np.asarray(regrets.mean(axis=0))


def _at_least(regret: Floats, count: int) -> Floats:
    """The first `count`; a space that was exhausted stays at its best."""
    return np.asarray(regret[np.minimum(np.arange(count), len(regret) - 1)])


def shared(task: Task, share_of_trials: float) -> tuple[float, list[int]]:
    """The mean regret at the end of a set, and the trials of each space."""
    budget = round(share_of_trials * task.each * len(SPACES))
    with tempfile.TemporaryDirectory() as folder, closing(Store.open(str(Path(folder) / "studies.db"))) as store:
        members = [Member(recorded, task.seed, store) for recorded in SPACES]
        shares, order = [Share() for _ in members], list[int]()
        while len(order) < budget and (place := next_member(shares, budget)) is not None:
            share, member = shares[place], members[place]
            wanted = max(first_trials(budget, len(members)) - share.judged, TURN)
            member.search(share.judged + min(wanted, budget - len(order)), True, share.promised)
            done = len(member.executor.trace().rows)
            share.is_exhausted = done == share.judged
            order += [place] * (done - share.judged)
            share.judged = done
    ends = [member.regret[-1] if share.judged else member.worst for member, share in zip(members, shares, strict=True)]
    return float(np.mean(ends)), [share.judged for share in shares]


class Found(NamedTuple):
    """What the searches of a seed came to: mean regrets."""

    cold: Floats
    warm: Floats
    sets: list[float]
    counts: list[int]
    """Trials of each space in the set of AIM."""


def run(task: Task) -> Found:
    """The searches of a seed."""
    sets = {budget: shared(task, budget) for budget in BUDGETS}
    ends = [end for end, _ in sets.values()]
    return Found(equal(task, warm=False), equal(task, warm=True), ends, sets[AIM][1])


def document(results: Sequence[Found], each: int) -> dict[str, Any]:
    """What the JSON has."""
    cold = np.stack([result.cold for result in results]).mean(axis=0)
    warm = np.stack([result.warm for result in results]).mean(axis=0)
    sets = np.array([result.sets for result in results]).mean(axis=0)
    at_aim = round(AIM * each) - 1
    return {
        "trials": each * len(SPACES),
        "geometric_mean": {
            "equal_cold": float(np.exp(-cold[-1])),
            "equal_warm": float(np.exp(-warm[-1])),
            f"equal_cold_{AIM:.0%}": float(np.exp(-cold[at_aim])),
            f"equal_warm_{AIM:.0%}": float(np.exp(-warm[at_aim])),
            **{f"set_{budget:.0%}": float(np.exp(-end)) for budget, end in zip(BUDGETS, sets, strict=True)},
        },
        "trials_of_each_space": {
            recorded.name: float(np.mean([result.counts[place] for result in results]))
            for place, recorded in enumerate(SPACES)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--each", type=int, default=40, help="trials of each space under equal shares")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    SPACES.extend(read(path) for path in options.spaces)
    tasks = [Task(seed, options.each) for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        results = list(pool.map(run, tasks))
    found = document(results, options.each)
    written = {**provenance(options.spaces), "seeds": options.seeds, **found}
    print(json.dumps(written, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(written, indent=1) + "\n")
    if options.hold:
        means = found["geometric_mean"]
        reached, wanted = means[f"set_{AIM:.0%}"], means["equal_cold"]
        holds.require([] if reached >= wanted else [f"a set with {AIM:.0%} of the trials reaches {reached:.4f} only"])


if __name__ == "__main__":
    main()
