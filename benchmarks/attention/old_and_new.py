"""Times two checkouts' builds of the same points side by side, on this GPU: what a change of the kernels costs.

    python -m benchmarks.attention.old_and_new OLD [--impl mma]... [--rounds 31] [--graphs 2] [--seconds S] [--json F]

OLD is a checkout of the same version of the kernel ABI (`git archive COMMIT | tar x -C OLD`). The points are those that
kept results name: the winners of docs/results/tuned_wgmma.json (of this kind of device where it has them), the fastest
of each implementation at each shape of cuda_attention.json, and those of decode_attention.json. Both checkouts build
them from the same parameters; what is the same program is not timed. Graphs of forwards are replayed in random order,
warm and cold; the ratio is new / old. All read and write the same tensors: where an output lies changes the time by
more than is looked for. Of each side there are several graphs, which show what the same kernel differs by. A point that
one of the checkouts does not build, or that refuses to run, is noted with the reason. No row begins after S seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import moved
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from benchmarks.attention.decode import label_of, points_of
from benchmarks.attention.decode_pages import STATES
from benchmarks.attention.interleaved import Figures, Forward, input_sets, race, spread, timer, variant_forward
from benchmarks.provenance import ROOT, command_line

RESULTS = ROOT / "docs" / "results"
BUILD = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
family, toolchain = Family.load(config.kernels_dir() / "sdpa"), Workbench(load_space("sdpa_cuda")).toolchain
def one(each):
    variant = Variant(family="sdpa", backend="cuda", impl=each["impl"], parameters=each["parameters"])
    try:
        built = build(family, variant, SdpaProblem.parse(each["problem"]), toolchain)
    except Exception as error:  # no header of cuBLAS, say: the other points do without
        return str(error)
    return built.model_dump(mode="json") if isinstance(built, Artifact) else str(built)
with ThreadPoolExecutor(os.cpu_count()) as pool:
    print(json.dumps(list(pool.map(one, json.loads(sys.stdin.read())))))
"""
"""What a checkout runs: it builds with its own sources, and says what it built, or why not."""


def point(problem: str, impl: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in parameters.items() if name != "IMPL"}
    return {"problem": problem, "impl": impl, "parameters": kept}


def tuned(device: str) -> Iterator[dict[str, Any]]:
    """The winner of each problem, on this kind of device where there is one of it."""
    rows = json.loads((RESULTS / "tuned_wgmma.json").read_text())["rows"]
    chosen = {row["problem"]: row for row in sorted(rows, key=lambda row: row.get("device") == device)}
    yield from (point(name, row["parameters"]["IMPL"], row["parameters"]) for name, row in chosen.items())


def fastest() -> Iterator[dict[str, Any]]:
    """The fastest point of each implementation at each shape."""
    for text, row in json.loads((RESULTS / "cuda_attention.json").read_text())["shapes"].items():
        for impl, found in row["sensitivity"].items():
            if found.get("best") is not None:
                yield point(text, impl, found["best"])


def few_queries() -> Iterator[dict[str, Any]]:
    """The fastest warm point of each shape of IMPL = decode. Needs the GPU, whose facts the space depends on."""
    for row in json.loads((RESULTS / "decode_attention.json").read_text())["shapes"]:
        us = {name: of["median"] for name, of in row["warm"]["us"].items() if "=" in name}
        workbench = Workbench(load_space("sdpa_cuda", problems=[row["problem"]]).only("decode"))
        multiprocessors = int(workbench.device.facts["MULTIPROCESSORS"])
        points = map(workbench.space.point, points_of(workbench, multiprocessors, len(workbench.space)))
        label = min(us, key=us.__getitem__)
        yield from (point(row["problem"], "decode", each) for each in points if label_of(each) == label)


def asked_for(impls: Sequence[str]) -> list[dict[str, Any]]:
    """The points, of these implementations where some are named; each once."""
    every = [*tuned(torch.cuda.get_device_name()), *few_queries(), *fastest()]
    return [each for n, each in enumerate(every) if each not in every[:n] and (not impls or each["impl"] in impls)]


def builds_of(checkout: Path, asked: Sequence[dict[str, Any]]) -> list[Artifact | str]:
    """The build of each point by a checkout, or why there is none."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), *sys.path[1:]])}
    done = subprocess.run(
        [sys.executable, "-c", BUILD],
        input=json.dumps(asked),
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return [each if isinstance(each, str) else Artifact.model_validate(each) for each in found]


def graphs_of(sides: Mapping[str, Forward], count: int) -> dict[str, Forward]:
    """The name of each graph and what it is one of: `count` of each side, the sides in turn."""
    return {f"{name} {turn}": sides[name] for turn in range(count) for name in sides}


def compared(each: dict[str, Any], old: Artifact, new: Artifact, rounds: int, graphs: int) -> Figures:
    """The figures of one point; old and new should give the same bits. Raises RuntimeError where one refuses to run."""
    problem = SdpaProblem.parse(each["problem"])
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    found: Figures = dict(each)
    for cold in (False, True):
        sets = input_sets(problem, inputs, cold)
        outputs = op_of(problem).tensors().outputs(problem, sets[0])
        sides = {name: variant_forward(of, problem, sets, outputs)[0] for name, of in (("old", old), ("new", new))}
        results = []
        for forward in sides.values():
            outputs[0].fill_(float("nan"))
            forward(0)
            results.append(outputs[0].clone())
        found["same_bits"] = torch.equal(*results)
        timers = {name: timer(forward, len(sets)) for name, forward in graphs_of(sides, graphs).items()}
        taken = race(timers, rounds)
        found[STATES[cold]] = {"us": {name: spread(us) for name, us in taken.items()}}
    return found


def row_or_reason(
    each: dict[str, Any], old: Artifact | str, new: Artifact | str, rounds: int, graphs: int
) -> Figures | str:
    """The row of a point, or why there is none."""
    if isinstance(old, str):
        return f"the old checkout does not build it: {old}"
    if isinstance(new, str):
        return f"it is not built: {new}"
    if old.program_hash == new.program_hash:
        return "the same program"
    try:
        return compared(each, old, new, rounds, graphs)
    except RuntimeError as error:
        return f"it does not run: {str(error).splitlines()[0]}"


def main() -> int:
    """Prints a line a row and writes the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.old_and_new", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--impl", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--graphs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.monotonic()
    asked = asked_for(given.impl)
    builds = builds_of(given.old.resolve(), asked), builds_of(ROOT, asked)
    rows: list[Figures] = []
    left_out: list[dict[str, str]] = []
    for each, old, new in zip(asked, *builds, strict=True):
        late = time.monotonic() - began > given.seconds
        row = "the time was up" if late else row_or_reason(each, old, new, given.rounds, given.graphs)
        if isinstance(row, str):
            left_out.append({"problem": each["problem"], "impl": each["impl"], "reason": row})
            print(each["impl"], each["problem"], row, flush=True)
        else:
            rows.append(row)
            us = {
                state: {name: round(of["median"], 2) for name, of in row[state]["us"].items()}
                for state in ("warm", "cold")
            }
            print(row["impl"], row["problem"], us, "same bits" if row["same_bits"] else "OTHER BITS", flush=True)
        if given.json is not None:
            where = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
            document = {"command": command_line([given.old]), **where, "left_out": left_out, "shapes": rows}
            given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
