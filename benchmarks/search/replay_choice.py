"""Other settings of the default sampler, replayed on recorded spaces: which of them are chosen for a space that has no
part in the choice. docs/method/search.md, "How the numbers were chosen".

    python -m benchmarks.search.replay_choice SPACE.json[.gz] ... [--seeds 50] [--in-flight 1 16] [--jobs 2]
        [--free-sampler] [--axis time] [--candidate NAME ...] [--minutes M] [--json PATH]

A search ends when it has found the optimum: from there on its score is settled. When the minutes are over, what is
written has the candidates that are done on all spaces.
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
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autotuner.run.jobs import Result
from autotuner.search.evolution import EvolutionarySampler
from autotuner.search.samplers import SAMPLERS
from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.store import Store
from autotuner.values.errors import InputError
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.search.replay_run import Clock, Spent, VirtualExecutor, search
from benchmarks.search.replay_score import AXES, Axis, Floats, Score, Trace, Yardstick
from benchmarks.search.replay_spaces import Recorded, read
from benchmarks.throughput.sweep_watch import rounded

AS_IT_IS = "as it is"
CANDIDATES: dict[str, SearchSettings] = {
    AS_IT_IS: DEFAULT,
    "starts anywhere": SearchSettings(start_candidates=1),
    "starts less far apart": SearchSettings(start_candidates=4),
    "8 starts": SearchSettings(starts=8),
    "3 starts": SearchSettings(starts=3),
    "lengths: narrower prior": SearchSettings(log_length_deviation=0.6),
    "lengths: wider prior": SearchSettings(log_length_deviation=2.4),
    "no number is a name": SearchSettings(share_enumerated=DEFAULT.share),
    "slow ones not squeezed": SearchSettings(slow_factor=1.0),
    "rejects as the slowest": SearchSettings(reject_quantile=1.0),
    "more fits": SearchSettings(refit_factor=1.1),
    "less noise": SearchSettings(log_noise=math.log(1e-4)),
    "short list of 64": SearchSettings(shortlist=64),
}
"""The settings of the sampler by name; first those that are more likely to matter."""

CHUNK = 5
"""So many searches share a store, and are what a process does at a time."""

SPACES: list[tuple[Recorded, Yardstick]] = []
"""Read before the processes are forked, which have them for nothing."""


# Settings -----------------------------------------------------------------------------------------------------------


@contextmanager
def registered(settings: SearchSettings) -> Iterator[str]:
    """The name under which, in the block, the default sampler with these settings can be had."""
    name = "evolution, set otherwise"
    SAMPLERS[name] = partial(EvolutionarySampler, settings=settings)
    try:
        yield name
    finally:
        del SAMPLERS[name]


# Searches -----------------------------------------------------------------------------------------------------------


class UntilFound(VirtualExecutor):
    """Spent with the budget, or once the optimum was evaluated."""

    def __init__(self, recorded: Recorded, yardstick: Yardstick, workers: int, clock: Clock) -> None:
        super().__init__(recorded, workers, clock, yardstick.seconds, yardstick.evaluations)
        self._optima = frozenset(np.flatnonzero(recorded.ms == yardstick.optimum).tolist())

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if self._ended and self._ended[-1][0] in self._optima:
            raise Spent
        return super().wait(timeout)


class Case(NamedTuple):
    """A candidate on a space."""

    candidate: str
    space: int
    in_flight: int


class Task(NamedTuple):
    """Some searches of a case, not begun after a moment of the monotonic clock."""

    case: Case
    seeds: range
    charge: bool
    until: float


def tasks(cases: Sequence[Case], seeds: int, charge: bool, until: float) -> list[Task]:
    """All searches."""
    firsts = range(0, seeds, CHUNK)
    return [Task(case, range(n, min(n + CHUNK, seeds)), charge, until) for case, n in product(cases, firsts)]


def run(task: Task) -> list[Trace]:
    """The searches of a task, fewer when time is up."""
    (recorded, yardstick), case, traces = SPACES[task.case.space], task.case, []
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        closing(Store.open(f"{folder}/studies.db")) as store,
        registered(CANDIDATES[case.candidate]) as sampler,
    ):
        for seed in task.seeds:
            if time.monotonic() > task.until:
                break
            clock = Clock(task.charge)
            executor = UntilFound(recorded, yardstick, case.in_flight, clock)
            search(recorded, executor, clock, sampler, seed, store)
            traces.append(executor.trace())
    return traces


class Sampled(NamedTuple):
    """A score, and those of the resamples of the searches."""

    p: float
    resampled: Floats

    def less(self, other: Sampled) -> dict[str, float]:
        """The difference with its 95 % interval. Both are of the same seeds, resampled alike: it is paired."""
        low, high = np.percentile(self.resampled - other.resampled, (2.5, 97.5))
        return {"p": self.p - other.p, "low": float(low), "high": float(high)}


def mean(scores: Sequence[Sampled]) -> Sampled:
    """Over spaces, or numbers in flight."""
    return Sampled(float(np.mean([each.p for each in scores])), np.mean([each.resampled for each in scores], axis=0))


Found = dict[Case, dict[Axis, tuple[Score, Floats]]]
"""By case and axis the score, and those of the resamples."""


def run_all(cases: Sequence[Case], seeds: int, charge: bool, until: float, jobs: int) -> Found:
    """The scores of the candidates that are done in time, each on all its spaces; a line for each of their cases."""
    found: Found = {}
    todo = tasks(cases, seeds, charge, until)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        results = pool.map(run, todo)
        for case in cases:
            traces = [trace for task in todo if task.case == case for trace in next(results)]
            if len(traces) == seeds:
                yardstick = SPACES[case.space][1]
                found[case] = {axis: yardstick.score(traces, axis) for axis in AXES}
                print(line(case, found[case]), flush=True)
    done = {name for name in CANDIDATES if all(case in found for case in cases if case.candidate == name)}
    return {case: scores for case, scores in found.items() if case.candidate in done}


def line(case: Case, scores: Mapping[Axis, tuple[Score, Floats]]) -> str:
    """A case, for a person."""
    of = "  ".join(f"{axis} {score.p:.3f} ({score.low:.3f} to {score.high:.3f})" for axis, (score, _) in scores.items())
    return f"{case.candidate:<24}  {SPACES[case.space][0].name:<24}  {case.in_flight:>3} in flight  {of}"


# Choosing -----------------------------------------------------------------------------------------------------------

Scores = Mapping[str, Mapping[str, Sampled]]
"""By candidate and space."""


def kin(space: str) -> str:
    """The word that the names of spaces of one operation begin with."""
    return space.split("_")[0]


def check(spaces: Sequence[str]) -> None:
    """Raises InputError when these spaces are too few to leave one out, or two have one name."""
    if len(set(spaces)) < len(spaces):
        raise InputError(f"two files of one name: {', '.join(sorted(spaces))}; rename one")
    if len({kin(space) for space in spaces}) < 2:
        raise InputError(f"all spaces are of {kin(spaces[0])}: give one of another operation, to choose by")


def best(scores: Scores, spaces: Sequence[str]) -> str:
    """The candidate of the greatest mean over these spaces; of equal ones the first."""
    return max(scores, key=lambda name: mean([scores[name][space] for space in spaces]).p)


def left_out(scores: Scores) -> list[dict[str, Any]]:
    """For each space: what the spaces of other operations choose, and what it is worth here.

    There must be spaces of two operations.
    """
    spaces = list(scores[AS_IT_IS])
    found = []
    for space in spaces:
        others = [other for other in spaces if kin(other) != kin(space)]
        chosen, hindsight = best(scores, others), best(scores, [space])
        found.append(
            {
                "space": space,
                "chosen": chosen,
                "chosen_p": scores[chosen][space].p,
                "as_it_is_p": scores[AS_IT_IS][space].p,
                "difference": scores[chosen][space].less(scores[AS_IT_IS][space]),
                "best_in_hindsight": hindsight,
                "best_p": scores[hindsight][space].p,
            }
        )
    return found


def choice(scores: Scores) -> dict[str, Any]:
    """What each space would get from the others, the mean of that, and the candidates by their mean over all."""
    spaces, rows = list(scores[AS_IT_IS]), left_out(scores)
    means = {name: mean([of[space] for space in spaces]) for name, of in scores.items()}
    blind = mean([scores[row["chosen"]][row["space"]] for row in rows])
    overall = [
        {"candidate": name, "p": each.p, "difference": each.less(means[AS_IT_IS])}
        for name, each in sorted(means.items(), key=lambda pair: -pair[1].p)
    ]
    return {
        "left_out": rows,
        "left_out_mean": {"p": blind.p, "difference": blind.less(means[AS_IT_IS])},
        "overall": overall,
        "chosen": best(scores, spaces),
    }


def choices(found: Found, axis: Axis) -> list[dict[str, Any]]:
    """For each number in flight, and for the mean over all of them."""
    numbers = sorted({case.in_flight for case in found})
    groups = [[number] for number in numbers] + ([numbers] if len(numbers) > 1 else [])
    return [{"in_flight": group, **choice(table(found, axis, group))} for group in groups]


def table(found: Found, axis: Axis, in_flight: Sequence[int]) -> Scores:
    """The mean over these numbers in flight."""
    scores: dict[str, dict[str, Sampled]] = {}
    for candidate, space in dict.fromkeys((case.candidate, case.space) for case in found):
        parts = [found[Case(candidate, space, number)][axis] for number in in_flight]
        name = SPACES[space][0].name
        scores.setdefault(candidate, {})[name] = mean([Sampled(score.p, each) for score, each in parts])
    return scores


def said(group: Mapping[str, Any]) -> str:
    """A choice, for a person."""

    def of(difference: Mapping[str, float]) -> str:
        return f"{difference['p']:+.3f} ({difference['low']:+.3f} to {difference['high']:+.3f})"

    lines = [f"\n{' and '.join(map(str, group['in_flight']))} in flight"]
    lines += [f"  {row['candidate']:<24}  {row['p']:.3f}  {of(row['difference'])}" for row in group["overall"]]
    for row in group["left_out"]:
        lines.append(
            f"  without {row['space']}: {row['chosen']}; there {row['chosen_p']:.3f}, {of(row['difference'])}; "
            f"best there: {row['best_in_hindsight']} {row['best_p']:.3f}"
        )
    return "\n".join([*lines, f"  mean of those left out: {of(group['left_out_mean']['difference'])}"])


# The command --------------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """From the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(". ")[0])
    parser.add_argument("spaces", type=Path, nargs="+", metavar="SPACE")
    parser.add_argument("--seeds", type=int, default=50, help="searches of each candidate on each space")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 16], metavar="N", help="evaluations at once")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--free-sampler", action="store_true", help="do not charge the sampler's own time")
    parser.add_argument("--axis", choices=AXES, default="time", help="what is chosen by")
    parser.add_argument("--candidate", nargs="+", choices=CANDIDATES, metavar="NAME", help="only these; default: all")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M", help="begin no search after these")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    return parser.parse_args()


def settings(candidates: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """What the JSON has of each candidate: its settings that are not the default's, and those."""
    return {
        name: {
            setting: {"now": getattr(DEFAULT, setting), "tried": getattr(CANDIDATES[name], setting)}
            for setting in SearchSettings.model_fields
            if setting in CANDIDATES[name].model_fields_set
        }
        for name in candidates
    }


def rows(found: Found) -> list[dict[str, Any]]:
    """What the JSON has of each case."""
    return [
        {"candidate": case.candidate, "space": SPACES[case.space][0].name, "in_flight": case.in_flight}
        | {axis: score._asdict() for axis, (score, _) in scores.items()}
        for case, scores in found.items()
    ]


def better(chosen: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where what the other spaces chose is better on those left out than the constants as they are, by its interval."""
    return [
        f"with {group['in_flight']} in flight another choice scores {group['left_out_mean']['difference']['p']:+.3f}"
        for group in chosen
        if group["left_out_mean"]["difference"]["low"] > 0
    ]


def main() -> None:
    """Run, print, and write what was asked for."""
    args = arguments()
    started = time.monotonic()
    SPACES[:] = [(each, Yardstick(each.ms, each.cost)) for each in map(read, args.spaces)]
    names = [name for name in CANDIDATES if name == AS_IT_IS or name in (args.candidate or CANDIDATES)]
    tried = settings(names)
    check([recorded.name for recorded, _ in SPACES])
    largest_first = sorted(range(len(SPACES)), key=lambda place: -SPACES[place][1].evaluations)
    cases = [Case(*each) for each in product(names, largest_first, sorted(set(args.in_flight)))]
    found = run_all(cases, args.seeds, not args.free_sampler, started + 60 * args.minutes, args.jobs)
    done = list(dict.fromkeys(case.candidate for case in found))
    if AS_IT_IS not in done:
        raise InputError("not even the sampler as it is was done on all spaces: give more --minutes or fewer --seeds")
    chosen = choices(found, args.axis)
    print(*map(said, chosen), sep="\n")
    document = {
        **provenance(args.spaces),
        "seconds": time.monotonic() - started,
        "jobs": args.jobs,
        "seeds": args.seeds,
        "sampler_is_charged": not args.free_sampler,
        "axis": args.axis,
        "candidates": {name: tried[name] for name in done},
        "not_done": [name for name in names if name not in done],
        "choices": chosen,
        "rows": rows(found),
    }
    if args.json is not None:
        args.json.write_text(json.dumps(rounded(document), indent=1) + "\n")
    if args.hold:
        holds.require(better(chosen))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"replay_choice: {error}")
