"""How far a search across implementations is behind one that is told the right one, on recorded spaces.

    python -m benchmarks.search.branches [SPACE.json.gz SPACE.json.gz SPACE.json.gz] [--seeds 6]
        [--json docs/results/branches.json]

Three recorded spaces, those of docs/results/landscapes if none are named, are the branches of one: the times of each
are divided by its best and multiplied by what FACTORS says, so that the best points of the branches differ by known
amounts. Each is the best one once. A row an arrangement and kind of search: how far the best so far is above the best
of all, after as many evaluations as AFTER says, by the mean over the seeds.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from autotuner.spaces.branch import Branch
from autotuner.spaces.space import BranchPoints, Space, SpaceFile
from autotuner.store import Store
from benchmarks.provenance import RESULTS, provenance
from benchmarks.search.replay_run import Clock, VirtualExecutor, search
from benchmarks.search.replay_spaces import PROBLEM, RECORDED, Recorded, read

FACTORS = (1.0, 1.25, 2.0)
"""The best time of the branches, relative to the best of all."""
AFTER = (20, 40, 60)
"""Evaluations after which the searches are compared."""
KEPT = ("sdpa_mission", "sdpa_small", "sdpa_causal_long")


def united(parts: Sequence[Recorded], factors: Sequence[float]) -> Recorded:
    """One space whose branches are those spaces, each of one branch, with the best times that the factors say."""
    branches = [_branch(part, f"branch{place}") for place, part in enumerate(parts)]
    file = SpaceFile(
        path="branches.toml",
        title="recorded spaces as branches",
        family=RECORDED,
        backend="cuda",
        problems=(PROBLEM,),
        branches=tuple(each.branch for each in branches),
    )
    scaled = [factor * part.ms / np.nanmin(part.ms) for part, factor in zip(parts, factors, strict=True)]
    return Recorded(
        name="+".join(part.name for part in parts),
        device=parts[0].device,
        space=Space(file, facts={}, branches=tuple(branches)),
        ms=np.concatenate(scaled),
        faults=tuple(fault for part in parts for fault in part.faults),
        seconds=np.concatenate([part.seconds for part in parts]),
        configurations=tuple(each for part in parts for each in part.configurations),
    )


def _branch(part: Recorded, impl: str) -> BranchPoints:
    """The points of a recorded space as a branch of that name; its parameters are its own."""
    (only,) = part.space.branches
    names = {name: f"{impl.upper()}_{name}" for name in only.values}
    values = {names[name]: each for name, each in only.values.items()}
    default = {names[name]: value for name, value in only.point(0).items() if name != "IMPL"}
    branch = Branch(impl=impl, parameters=values, default=default)
    return BranchPoints(branch, {}, (PROBLEM,), only.rows, raw_count=len(only), applied=(), removed=())


def regrets(recorded: Recorded, seeds: range, best: float) -> list[float]:
    """How far the best so far is above `best`, relative, after AFTER evaluations: the mean over the seeds."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            with closing(Store.open(f"{folder}/{seed}.db")) as store:
                clock = Clock(charge=False)
                executor = VirtualExecutor(recorded, 1, clock, 0.0, max(AFTER))
                search(recorded, executor, clock, "evolution", seed, store)
            ms = recorded.ms[executor.trace().rows]
            found.append([float(np.nanmin(ms[:count])) / best - 1 for count in AFTER])
    return [round(fmean(each), 4) for each in zip(*found, strict=True)]


def rows(parts: Sequence[Recorded], seeds: range) -> Iterator[dict[str, Any]]:
    """For each arrangement the search across branches, and the one that has the right branch alone."""
    for turn in range(len(parts)):
        turned = [*parts[turn:], *parts[:turn]]
        across = united(turned, FACTORS)
        told = united(turned[:1], FACTORS[:1])
        for kind, recorded in (("across branches", across), ("told the branch", told)):
            yield {"best": turned[0].name, "search": kind, "regret": regrets(recorded, seeds, 1.0)}


def said(document: dict[str, Any] | None) -> str:
    """docs/method/search.md: the means in a sentence."""
    if document is None:
        return "Not measured yet."
    means = {}
    for kind in ("across branches", "told the branch"):
        of = [row["regret"] for row in document["rows"] if row["search"] == kind]
        means[kind] = ", ".join(f"{100 * fmean(each):.1f} %" for each in zip(*of, strict=True))
    after = ", ".join(map(str, AFTER))
    return (
        f"Three landscapes as branches: {means['across branches']} above the optimum after {after} trials; told the"
        f" branch, {means['told the branch']}. Made by `{document['command']}`."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    paths = options.spaces or [RESULTS / "landscapes" / f"{name}.json.gz" for name in KEPT]
    if len(paths) != len(FACTORS):
        parser.error(f"expected {len(FACTORS)} spaces")
    document = {**provenance(paths), "factors": FACTORS, "after": AFTER, "seeds": options.seeds, "rows": []}
    for row in rows([read(path) for path in paths], range(options.seeds)):
        print(json.dumps(row), flush=True)
        document["rows"].append(row)
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
