"""One budget over several problems, given to what promises most, against equal shares; docs/sweeps.md.

    python -m benchmarks.search.sweep_sets SPACE.json.gz ... [--seeds 10] [--each 40] [--jobs 2] [--json PATH] [--hold]

For each seed kept landscapes are searched thrice: with equal shares, cold; with equal shares, each starting from what
its nearest relative before it has measured; and as a sweep set (autotuner/sweeps/shares.py), which starts the same way.
What counts is the geometric mean over the spaces of t_optimum / t_best after so many trials in all. With --hold the
exit code is 1 unless a set reaches in 70 % of the trials what equal shares, cold, reach in all.
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
AIM = 0.7
"""Of the trials of equal shares."""
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


def shared(task: Task) -> tuple[Floats, list[int]]:
    """(trials,): the mean regret after each trial of a set, from when each space has one; and the trials of each."""
    budget = task.each * len(SPACES)
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
    worst = np.array([np.log(np.nanmax(each.ms) / np.nanmin(each.ms)) for each in SPACES])
    regrets, counts, curve = [member.regret for member in members], [0] * len(members), []
    for place in order:
        counts[place] += 1
        worst[place] = regrets[place][counts[place] - 1]
        curve.append(worst.mean())
    return np.array(curve), counts


def run(task: Task) -> tuple[Floats, Floats, Floats, list[int]]:
    """The three searches of a seed."""
    curve, counts = shared(task)
    return equal(task, warm=False), equal(task, warm=True), curve, counts


def needed(curve: Floats, goal: float) -> int:
    """After how many trials a mean curve is as low as that; one more than it has where it never is."""
    reached = np.flatnonzero(curve <= goal)
    return int(reached[0]) + 1 if len(reached) else len(curve) + 1


def document(results: Sequence[tuple[Floats, Floats, Floats, list[int]]], each: int) -> dict[str, Any]:
    """What the JSON has."""
    spaces, total = len(SPACES), each * len(SPACES)
    length = min(len(curve) for *_, curve, _ in results)
    cold = np.stack([result[0] for result in results]).mean(axis=0)
    warm = np.stack([result[1] for result in results]).mean(axis=0)
    shared_curve = np.mean([curve[:length] for *_, curve, _ in results], axis=0)
    at_aim = min(round(AIM * total), length) - 1
    return {
        "trials": total,
        "geometric_mean": {
            "equal_cold": float(np.exp(-cold[-1])),
            "equal_warm": float(np.exp(-warm[-1])),
            "set": float(np.exp(-shared_curve[-1])),
            f"set_after_{AIM:.0%}": float(np.exp(-shared_curve[at_aim])),
        },
        "trials_needed_by_a_set": {
            "for_equal_cold": needed(shared_curve, cold[-1]),
            "for_equal_warm": needed(shared_curve, warm[-1]),
        },
        "trials_needed_by_equal_warm_for_its_own": spaces * needed(warm, warm[-1]),
        "trials_of_each_space": {
            recorded.name: float(np.mean([counts[place] for *_, counts in results]))
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
        share = found["trials_needed_by_a_set"]["for_equal_cold"] / found["trials"]
        holds.require([] if share <= AIM else [f"a set needs {share:.0%} of the trials of equal shares"])


if __name__ == "__main__":
    main()
