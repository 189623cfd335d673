"""Tuned variants where they were not tuned: cold and warm, in the other 16-bit dtype, with the other mask.

    python -m benchmarks.attention.elsewhere docs/results/tuned_wgmma.json [--problems TEXT]... [--json FILE]

Of each row of benchmarks/tuned.py that was found on this kind of device (with --problems, of those that contain one of
the texts: FILE keeps what it has of the others) the variant is built for the row's own problem and for those two
others. Nothing is tuned; what passes the gate races SDPA's backends in graphs, interleaved. A speedup is over the
backend with the shortest median. Needs a GPU that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from autotuner.devices.environment import usable_cpus
from autotuner.ops import OPS, op_of
from autotuner.ops.tensors import moved
from autotuner.run.line import LineFactory
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault
from benchmarks import holds
from benchmarks.attention.interleaved import baseline_forward, input_sets, race, ratios, spread, timer, variant_forward
from benchmarks.provenance import command_line

Figures = dict[str, Any]

BACKENDS = ("cudnn", "flash", "efficient")
STATES = {"cold": True, "warm": False}


def problems(text: str) -> Iterator[tuple[str, Problem]]:
    """The problem itself, and those that differ from it in the dtype and in the mask."""
    parse = OPS["sdpa"].problem.parse
    sizes, dtype, mask = text.rsplit(" ", 2)
    yield "itself", parse(text)
    yield "other dtype", parse(f"{sizes} {'float16' if dtype == 'bfloat16' else 'bfloat16'} {mask}")
    yield "other mask", parse(f"{sizes} {dtype} {'full' if mask == 'causal' else 'causal'}")


class Case:
    """A row's variant on one problem."""

    def __init__(self, row: Figures, where: str, problem: Problem) -> None:
        """Builds it."""
        self.row, self.where, self.problem = row, where, problem
        file = load_space(row["space"])
        self._bench = Workbench(file.model_copy(update={"problems": (problem,)}))
        index = self._bench.space.index_of(row["parameters"])
        self._built = None if index is None else self._bench.build_all([index])[0]

    def figures(self, rounds: int) -> Figures:
        """Its times, or why there are none."""
        if self._built is None:
            return {"refused": "it is no point of the space for this problem"}
        if isinstance(self._built, Fault):
            return {"refused": self._built.detail}
        line = LineFactory(self._bench.device, self._bench.toolchain, self._bench.family)()
        fault = line.check(self._built, self._bench.conditions, lambda _: None).fault
        if fault is not None:
            return {"refused": f"{fault.code}: {fault.detail}"}
        return timed(self._built, self.problem, rounds)


def timed(artifact: Artifact, problem: Problem, rounds: int) -> Figures:
    """Microseconds of the variant and of each backend that serves the problem, and the speedup over the fastest."""
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    found: Figures = {}
    for state, cold in STATES.items():
        sets = input_sets(problem, inputs, cold)
        timers = {"variant": timer(variant_forward(artifact, problem, sets)[0], len(sets))}
        for name in BACKENDS:
            try:
                timers[name] = timer(baseline_forward(name, problem, sets), len(sets))
            except RuntimeError as error:  # this backend does not serve it
                print(f"{problem}: {name}: {error}", flush=True)
        taken = race(timers, rounds)
        us = {name: spread(each) for name, each in taken.items()}
        fastest = min(taken.keys() - {"variant"}, key=lambda name: us[name]["median"])
        found[state] = {"us": us, "backend": fastest, "speedup": ratios(taken[fastest], taken["variant"])}
    return found


def rows_of(path: Path, texts: Sequence[str], device: str) -> list[Figures]:
    """Those that were tuned on this kind of device, of the problems that contain one of the texts; without any, all."""
    rows: list[Figures] = json.loads(path.read_text())["rows"]
    wanted = [row for row in rows if not texts or any(text in row["problem"] for text in texts)]
    return [row for row in wanted if row.get("device") == device]


def kept(path: Path | None, device: str, tuned: list[Figures]) -> list[Figures]:
    """What the file has of other variants and of other kinds of device."""
    if path is None or not path.exists():
        return []
    rows: list[Figures] = json.loads(path.read_text())["rows"]
    again = {row["problem"] for row in tuned}
    return [row for row in rows if row["device"] != device or row["tuned"] not in again]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="what benchmarks/tuned.py wrote")
    parser.add_argument("--problems", default=[], metavar="TEXT", action="append")
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = torch.cuda.get_device_name()
    tuned = rows_of(given.rows, given.problems, device)
    holds.measured([row["problem"] for row in tuned], "variant that was tuned on this device")
    asked = [(row, where, problem) for row in tuned for where, problem in problems(row["problem"])]
    document: Figures = {"command": command_line(), "rows": kept(given.json, device, tuned)}
    with ThreadPoolExecutor(usable_cpus()) as pool:
        for case in pool.map(lambda each: Case(*each), asked):
            figures = case.figures(given.rounds)
            names = {"tuned": case.row["problem"], "where": case.where, "problem": str(case.problem)}
            document["rows"].append({"device": device, **names, **figures})
            document |= {"when": datetime.now(UTC).isoformat(timespec="seconds"), "torch": str(torch.__version__)}
            said = figures.get("refused") or {state: round(figures[state]["speedup"]["median"], 3) for state in STATES}
            print(f"{names['tuned']}, {names['where']}: {said}", flush=True)
            if given.json is not None:
                given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
