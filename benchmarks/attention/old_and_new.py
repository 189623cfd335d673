"""Times two checkouts' builds of the same points side by side at the dense shapes, on this GPU.

    python -m benchmarks.attention.old_and_new OLD [--impl mma]... [--problems TEXT]... [--rounds 31] [--graphs 2]
        [--tuned FILE] [--json FILE]

OLD is a checkout of version 1 of the kernel ABI (`git archive COMMIT | tar x -C OLD`). The points are the fastest of
each named implementation at each shape of docs/results/cuda_attention.json whose name begins with TEXT; both checkouts
build them from the same parameters. Graphs of forwards are replayed in random order, warm and cold; the ratio is
new / old. All read and write the same tensors: where an output lies changes the time by more than is looked for. Of
each side there are several graphs, which show what the same kernel differs by. With --tuned, the points that
benchmarks/tuned.py found of the new kernels on this kind of device race beside them. A point that one of the checkouts
does not build, or that refuses to run, is noted with the reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import torch

from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, moved
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.errors import AutotunerError
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from benchmarks.attention.interleaved import Figures, Forward, input_sets, race, ratios, spread, timer, variant_forward
from benchmarks.provenance import ROOT, command_line

RESULTS = ROOT / "docs" / "results" / "cuda_attention.json"
BUILD = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values import config
from autotuner.values.variant import Variant
asked = json.loads(sys.stdin.read())
family = Family.load(config.kernels_dir() / "sdpa")
if sys.argv[1:]:
    from autotuner.devices.cuda.architecture import architecture
    from autotuner.devices.cuda.toolchain import CudaToolchain
    toolchain = CudaToolchain.discover(architecture(sys.argv[1]))
else:
    from autotuner.tuning.workbench import Workbench, load_space
    toolchain = Workbench(load_space("sdpa_cuda")).toolchain
def one(each):
    variant = Variant(family="sdpa", backend="cuda", impl=each["impl"], parameters=each["parameters"])
    try:
        built = build(family, variant, SdpaProblem.parse(each["problem"]), toolchain)
    except Exception as error:  # no header of cuBLAS, say: the other points do without
        return None, str(error)
    return getattr(built, "name", None), str(getattr(built, "path", built))
with ThreadPoolExecutor(os.cpu_count()) as pool:
    print(json.dumps(list(pool.map(one, asked))))
"""
"""What a checkout runs: it builds with its own sources, and says where the libraries are. For the architecture that is
named, or this GPU's."""


def asked_for(impls: list[str], problems: list[str]) -> list[dict[str, Any]]:
    """The fastest point of each implementation at each shape."""
    shapes = json.loads(RESULTS.read_text())["shapes"]
    found = []
    for text, row in shapes.items():
        if problems and not any(text.startswith(each) for each in problems):
            continue
        for impl in impls:
            best = row["sensitivity"].get(impl, {}).get("best")
            if best is not None:
                parameters = {name: value for name, value in best.items() if name != "IMPL"}
                found.append({"problem": text, "impl": impl, "parameters": parameters})
    return found


def tuned_for(path: Path | None) -> dict[str, dict[str, Any]]:
    """The points that were tuned on this kind of device, by their problems."""
    rows = [] if path is None else json.loads(path.read_text())["rows"]
    here = [row for row in rows if row.get("device") == torch.cuda.get_device_name()]
    return {row["problem"]: row["parameters"] for row in here if row["parameters"]["IMPL"] != "wgmma"}


def builds_of(
    checkout: Path, asked: list[dict[str, Any]], architecture: str | None = None
) -> list[tuple[str | None, str]]:
    """Name and path of the library of each point as a checkout builds it; no name, and why not, where it does not. For
    that architecture, or this GPU's."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), *sys.path[1:]])}
    command = [sys.executable, "-c", BUILD, *([] if architecture is None else [architecture])]
    done = subprocess.run(
        command, input=json.dumps(asked), cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return [(name, str(path)) for name, path in json.loads(done.stdout.splitlines()[-1])]


def old_forward(name: str, path: str, problem: SdpaProblem, sets: list[Tensors], outputs: Tensors) -> Forward:
    """Forwards of a library of version 1, whose binding takes addresses."""
    loader = ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    dims = (problem.batch, problem.heads, problem.seq_q, problem.seq_k)
    wanted = int(module.workspace(dims, problem.scalars))
    workspace = torch.zeros(wanted // 4 + 64, dtype=torch.int32, device="cuda")
    address, o = -(-workspace.data_ptr() // 64) * 64, (outputs[0].data_ptr(),)
    given = [tuple(tensor.data_ptr() for tensor in inputs) for inputs in sets]

    def forward(number: int) -> object:
        stream = torch.cuda.current_stream().cuda_stream
        status = module.run(given[number], o, dims, problem.scalars, address, wanted, stream)
        if status:
            raise RuntimeError(f"status {status}")
        return workspace, outputs

    return forward


def graphs_of(sides: Mapping[str, Forward], count: int) -> dict[str, Forward]:
    """The name of each graph and what it is one of: `count` of each side, the sides in turn. The second of "old" is
    "again"."""
    later = {name: "again" if name == "old" else f"{name} again" for name in sides}
    named = {name: [name, later[name], *(f"{later[name]} {n}" for n in range(2, count))][:count] for name in sides}
    return {named[name][turn]: sides[name] for turn in range(count) for name in sides}


def over_old(taken: Mapping[str, Sequence[float]]) -> Figures:
    """The figures of a race from the microseconds of each graph in every round."""
    over = {f"{name}_over_old": ratios(us, taken["old"]) for name, us in taken.items() if name != "old"}
    return {"us": {name: spread(us) for name, us in taken.items()}, **over}


def compared(
    each: dict[str, Any], old: tuple[str, str], new: Artifact, tuned: Artifact | None, rounds: int, graphs: int
) -> Figures:
    """The figures of one shape; old and new should give the same bits. Raises RuntimeError where one refuses to run."""
    problem = SdpaProblem.parse(each["problem"])
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    found: Figures = dict(each)
    for cold in (False, True):
        sets = input_sets(problem, inputs, cold)
        outputs = op_of(problem).tensors().outputs(problem, sets[0])
        before, (after, _) = old_forward(*old, problem, sets, outputs), variant_forward(new, problem, sets, outputs)
        before(0)
        then = outputs[0].clone()
        outputs[0].fill_(float("nan"))
        after(0)
        found["same_bits"] = bool(torch.equal(then, outputs[0]))
        sides = {"old": before, "new": after}
        if tuned is not None:
            sides["tuned"] = variant_forward(tuned, problem, sets, outputs)[0]
        timers = {name: timer(forward, len(sets)) for name, forward in graphs_of(sides, graphs).items()}
        found["cold" if cold else "warm"] = over_old(race(timers, rounds))
    return found


def built_here(asked: list[dict[str, Any]]) -> list[Artifact | Fault | AutotunerError]:
    """The build of each point by this checkout, or why there is none."""
    family, toolchain = Family.load(config.kernels_dir() / "sdpa"), Workbench(load_space("sdpa_cuda")).toolchain

    def built(each: dict[str, Any]) -> Artifact | Fault | AutotunerError:
        variant = Variant(family="sdpa", backend="cuda", impl=each["impl"], parameters=each["parameters"])
        try:
            return build(family, variant, SdpaProblem.parse(each["problem"]), toolchain)
        except AutotunerError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(built, asked))


def tuned_builds(path: Path | None, asked: list[dict[str, Any]]) -> list[Artifact | None]:
    """The build of the tuned point of each problem that is asked for; None where there is none."""
    found = tuned_for(path)
    wanted = {each["problem"]: found[each["problem"]] for each in asked if each["problem"] in found}
    points = [
        {"problem": problem, "impl": point["IMPL"], "parameters": {k: v for k, v in point.items() if k != "IMPL"}}
        for problem, point in wanted.items()
    ]
    made = dict(zip(wanted, built_here(points), strict=True))
    return [each if isinstance(each := made.get(one["problem"]), Artifact) else None for one in asked]


def row_or_reason(
    each: dict[str, Any],
    old: tuple[str | None, str],
    new: Artifact | Fault | AutotunerError,
    tuned: Artifact | None,
    rounds: int,
    graphs: int,
) -> Figures | str:
    """The row of a point, or why there is none."""
    name, path = old
    if name is None:
        return f"the old checkout does not build it: {path}"
    if not isinstance(new, Artifact):
        return f"it is not built: {new}"
    try:
        return compared(each, (name, path), new, tuned, rounds, graphs)
    except RuntimeError as error:
        return f"it does not run: {str(error).splitlines()[0]}"


def said(row: Figures) -> str:
    """A line of the row: the medians of the rounds' ratios."""
    states = {
        state: {name: round(of["median"], 4) for name, of in row[state].items() if name != "us"}
        for state in ("warm", "cold")
    }
    return f"{row['impl']} {row['problem']} {states} {'same bits' if row['same_bits'] else 'OTHER BITS'}"


def main() -> int:
    """Prints a line a row and writes the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.old_and_new", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--impl", action="append")
    parser.add_argument("--problems", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--graphs", type=int, default=2)
    parser.add_argument("--tuned", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    asked = asked_for(given.impl or ["mma"], given.problems)
    builds = builds_of(given.old.resolve(), asked), built_here(asked), tuned_builds(given.tuned, asked)
    rows: list[Figures] = []
    left_out: list[dict[str, str]] = []
    for each, old, new, tuned in zip(asked, *builds, strict=True):
        row = row_or_reason(each, old, new, tuned, given.rounds, given.graphs)
        if isinstance(row, str):
            left_out.append({"problem": each["problem"], "impl": each["impl"], "reason": row})
            print(each["impl"], each["problem"], row, flush=True)
        else:
            rows.append(row)
            print(said(row), flush=True)
        if given.json is not None:
            where = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
            document = {"command": command_line([given.old]), **where, "left_out": left_out, "shapes": rows}
            given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
