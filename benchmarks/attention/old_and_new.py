"""Times two checkouts' builds of the same points side by side at the dense shapes, on this GPU.

    python -m benchmarks.attention.old_and_new OLD [--tuned FILE] [--json FILE] [--impl mma] [--rounds 31]
        [--problems TEXT]

OLD is a checkout of version 1 of the kernel ABI (`git archive COMMIT | tar x -C OLD`). The points are the fastest of
the implementation at each shape of docs/results/cuda_attention.json whose name begins with TEXT. Graphs of forwards are
replayed in random order, warm and cold; the ratio is new / old. All read and write the same tensors: where an output
lies changes the time by more than is looked for. A second graph of the old forwards shows what the same kernel differs
by. With --tuned, the points that benchmarks/tuned.py found of the new kernels on this kind of device race beside them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import torch

from autotuner.build.build import build
from autotuner.build.family import Family
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, moved
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from benchmarks.attention.interleaved import Figures, Forward, input_sets, race, ratios, spread, timer, variant_forward
from benchmarks.provenance import ROOT, command_line

RESULTS = ROOT / "docs" / "results" / "cuda_attention.json"
BUILD = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from autotuner.build.build import build
from autotuner.build.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.variant import Variant
asked = json.loads(sys.stdin.read())
family = Family.load(config.kernels_dir() / "sdpa")
toolchain = Workbench(load_space("sdpa_cuda")).toolchain
def one(each):
    variant = Variant(family="sdpa", backend="cuda", impl=each["impl"], parameters=each["parameters"])
    built = build(family, variant, SdpaProblem.parse(each["problem"]), toolchain)
    return getattr(built, "name", None), str(getattr(built, "path", built))
with ThreadPoolExecutor(os.cpu_count()) as pool:
    print(json.dumps(list(pool.map(one, asked))))
"""
"""What the old checkout runs: it builds with its own sources, and says where the libraries are."""


def asked_for(impl: str, problems: list[str]) -> list[dict[str, Any]]:
    """The fastest point of the implementation at each shape."""
    shapes = json.loads(RESULTS.read_text())["shapes"]
    found = []
    for text, row in shapes.items():
        best = row["sensitivity"].get(impl, {}).get("best")
        if best is not None and (not problems or any(text.startswith(each) for each in problems)):
            parameters = {name: value for name, value in best.items() if name != "IMPL"}
            found.append({"problem": text, "impl": impl, "parameters": parameters})
    return found


def tuned_for(path: Path | None) -> dict[str, dict[str, Any]]:
    """The points that were tuned on this kind of device, by their problems."""
    rows = [] if path is None else json.loads(path.read_text())["rows"]
    here = [row for row in rows if row.get("device") == torch.cuda.get_device_name()]
    return {row["problem"]: row["parameters"] for row in here if row["parameters"]["IMPL"] != "wgmma"}


def old_builds(checkout: Path, asked: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Name and path of the library of each point as the old checkout builds it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), *sys.path[1:]])}
    command = [sys.executable, "-c", BUILD]
    done = subprocess.run(
        command, input=json.dumps(asked), cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return [(str(name), str(path)) for name, path in json.loads(done.stdout.splitlines()[-1])]


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


def compared(each: dict[str, Any], old: tuple[str, str], new: Artifact, tuned: Artifact | None, rounds: int) -> Figures:
    """The figures of one shape; old and new must give the same bits."""
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
        forwards = {"old": before, "again": before, "new": after}
        if tuned is not None:
            forwards["tuned"] = variant_forward(tuned, problem, sets, outputs)[0]
        taken = race({name: timer(forward, len(sets)) for name, forward in forwards.items()}, rounds)
        state = {name: spread(us) for name, us in taken.items()}
        over = {f"{name}_over_old": ratios(us, taken["old"]) for name, us in taken.items() if name != "old"}
        found["cold" if cold else "warm"] = {"us": state, **over}
    return found


def main() -> int:
    """Prints a line a shape and writes the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.old_and_new", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--tuned", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--impl", default="mma")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--problems", action="append", default=[])
    given = parser.parse_args()
    asked, found = asked_for(given.impl, given.problems), tuned_for(given.tuned)
    old = old_builds(given.old.resolve(), asked)
    family, toolchain = Family.load(config.kernels_dir() / "sdpa"), Workbench(load_space("sdpa_cuda")).toolchain
    rows: list[Figures] = []

    def built(problem: str, impl: str, parameters: dict[str, Any]) -> Artifact | Fault:
        variant = Variant(family="sdpa", backend="cuda", impl=impl, parameters=parameters)
        return build(family, variant, SdpaProblem.parse(problem), toolchain)

    def built_tuned(problem: str) -> Artifact | None:
        if problem not in found:
            return None
        parameters = {name: value for name, value in found[problem].items() if name != "IMPL"}
        each = built(problem, found[problem]["IMPL"], parameters)
        return each if isinstance(each, Artifact) else None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        mine = list(pool.map(lambda each: built(**each), asked))
        tuned = list(pool.map(lambda each: built_tuned(each["problem"]), asked))
    for each, library, new, best in zip(asked, old, mine, tuned, strict=True):
        if not isinstance(new, Artifact):
            print(each["problem"], "is not built:", new, flush=True)
            continue
        rows.append(compared(each, library, new, best, given.rounds))
        said = {
            state: {name: round(of["median"], 4) for name, of in rows[-1][state].items() if name != "us"}
            for state in ("warm", "cold")
        }
        print(each["problem"], said, "same bits" if rows[-1]["same_bits"] else "OTHER BITS", flush=True)
        if given.json is not None:
            where = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
            given.json.write_text(
                json.dumps({"command": command_line([given.old]), **where, "shapes": rows}, indent=1) + "\n"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
