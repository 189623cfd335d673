"""One budget over several problems, given to what promises most, against equal shares; docs/sweeps.md.

    python -m benchmarks.search.sweep_sets SPACE.json.gz ... [--seeds 10] [--each 20] [--jobs 2] [--json PATH] [--hold]

For each seed kept landscapes are searched with equal shares, each of them cold, or starting from what its nearest
relative before it has measured; and as sweep sets (autotuner/jobs/shares.py) of several budgets. What counts is the
geometric mean over the spaces of t_optimum / t_best at the end. With --hold the exit code is 1 where a set does worse
than equal shares of as many trials, by more than two standard errors.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # searches run side by side

import argparse
import json
import math
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

from autotuner.jobs.shares import TURN, Share, first_trials, next_member
from autotuner.store import Store
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
"""The budget with which a set should reach what equal shares reach with all."""
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
        """Judges until the study has `trials`."""
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


class Arm(NamedTuple):
    """A way to spend a budget."""

    share: float
    """Of the trials of equal shares."""
    warm: bool
    """Each starts from what its nearest relative has measured."""
    promising: bool
    """What promises most goes on, else shares are equal."""

    def __str__(self) -> str:
        how = "set" if self.promising else "equal"
        return f"{how}_{'warm' if self.warm else 'cold'}_{self.share:.0%}"


ARMS = (
    *(Arm(share, warm, False) for share in (AIM, 1.0) for warm in (False, True)),
    *(Arm(share, False, True) for share in BUDGETS),
)


def _equal_member(shares: Sequence[Share], budget: int) -> int | None:
    """One after another, each to its equal share."""
    wanted = budget / len(shares)
    return next((place for place, share in enumerate(shares) if share.judged < wanted and not share.is_exhausted), None)


class Found(NamedTuple):
    """What an arm came to with one seed."""

    regret: float
    """The mean over the spaces of ln(t_best / t_optimum)."""
    counts: list[int]
    """Trials of each space."""


def spent(task: Task, arm: Arm) -> Found:
    """Spends a budget."""
    budget, rule = round(arm.share * task.each * len(SPACES)), next_member if arm.promising else _equal_member
    with tempfile.TemporaryDirectory() as folder, closing(Store.open(str(Path(folder) / "studies.db"))) as store:
        members = [Member(recorded, task.seed, store) for recorded in SPACES]
        shares, left = [Share() for _ in members], budget
        while left > 0 and (place := rule(shares, budget)) is not None:
            share, member = shares[place], members[place]
            wanted = max(first_trials(budget, len(members)) - share.judged, TURN)
            member.search(share.judged + min(wanted, left), arm.warm, share.promised)
            done = len(member.executor.trace().rows)
            share.is_exhausted = done == share.judged
            left -= done - share.judged
            share.judged = done
    ends = [member.regret[-1] if share.judged else member.worst for member, share in zip(members, shares, strict=True)]
    return Found(float(np.mean(ends)), [share.judged for share in shares])


def run(task: Task) -> dict[str, Found]:
    """The searches of a seed, by arm."""
    return {str(arm): spent(task, arm) for arm in ARMS}


def document(results: Sequence[dict[str, Found]], each: int) -> dict[str, Any]:
    """What the JSON has."""
    regrets = {str(arm): np.array([result[str(arm)].regret for result in results]) for arm in ARMS}
    chosen = str(Arm(AIM, False, True))
    return {
        "trials": each * len(SPACES),
        "geometric_mean": {arm: round(float(np.exp(-of.mean())), 4) for arm, of in regrets.items()},
        "gain_of_a_set": {arm: _gain(regrets[arm] - regrets[chosen]) for arm in regrets if arm != chosen},
        "trials_of_each_space": {
            recorded.name: float(np.mean([result[chosen].counts[place] for result in results]))
            for place, recorded in enumerate(SPACES)
        },
    }


def _gain(difference: Floats) -> dict[str, float]:
    """Of a set with AIM of the trials over another arm: the mean of ln, and its standard error."""
    error = float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else float("nan")
    return {"mean": round(float(difference.mean()), 4), "standard_error": round(error, 4)}


def unmet(gains: dict[str, dict[str, float]]) -> list[str]:
    """What must hold and does not. Without a standard error, which takes two seeds, nothing is known."""
    rival = str(Arm(AIM, False, False))
    gain = gains[rival]
    if not math.isfinite(gain["standard_error"]):
        return [f"a set against {rival}: one seed has no standard error"]
    return [f"a set does worse than {rival}: {gain}"] if gain["mean"] < -2 * gain["standard_error"] else []


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--each", type=int, default=20, help="trials of each space under equal shares")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    SPACES.extend(read(path) for path in options.spaces)
    holds.measured(map(str, range(options.seeds)), "search")
    tasks = [Task(seed, options.each) for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        results = list(pool.map(run, tasks))
    found = document(results, options.each)
    written = {**provenance(options.spaces), "seeds": options.seeds, **found}
    print(json.dumps(written, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(written, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(found["gain_of_a_set"]))


if __name__ == "__main__":
    main()
