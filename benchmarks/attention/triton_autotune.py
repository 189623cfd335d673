"""Puts what `triton.autotune` chooses for the shipped Triton kernel beside what is tuned here, both by one clock.

    python -m benchmarks.attention.triton_autotune [docs/results/tuned_wgmma.json] [--problems TEXT]... [--rounds N]
        [--configs N] [--json FILE]

`triton.autotune` times its own configurations, those of Triton's tutorial on attention, by its own clock, as it does in
a program. Its choice runs as Triton launches it (`jit`) and as this project builds it (`triton`), beside the tuned
variant of the row (`ours`) and cuDNN: graphs of some milliseconds in random order, as peers.py replays them. Needs
Triton, and a GPU that nothing else uses.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from itertools import product
from pathlib import Path
from typing import Any

import torch

from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, moved
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.outcome import Artifact
from benchmarks import holds
from benchmarks.attention.elsewhere import rows_of
from benchmarks.attention.interleaved import Figures, Forward, baseline_forward, race, spread, timer, variant_forward
from benchmarks.attention.peers import agrees, kept, over
from benchmarks.provenance import command_line

SIX = (
    "(1,32,2048,128) float16 full",
    "(1,32,2048,128) float16 causal",
    "(2,8,2048,64) float16 full",
    "(4,16,1024,64) float16 causal",
    "(4,32,4096,128) float16 causal",
    "(1,8,512,64) float16 full",
)


def kernel() -> Any:
    """The shipped kernel, as a module of Triton's."""
    path = config.kernels_dir() / "sdpa" / "flash_triton.py"
    spec = importlib.util.spec_from_file_location("flash_triton", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.attention


def configurations(most: int) -> list[Any]:
    """Those of Triton's tutorial 06, fused attention."""
    import triton

    every = product((128, 64), (64, 128, 32), (3, 4, 2), (8, 4))
    return [
        triton.Config({"BLOCK_M": rows, "BLOCK_N": keys}, num_stages=stages, num_warps=warps)
        for rows, keys, stages, warps in list(every)[:most]
    ]


def chosen(problem: SdpaProblem, inputs: Tensors, configs: list[Any]) -> tuple[dict[str, int], Forward]:
    """The configuration that `triton.autotune` finds fastest, and a forward as Triton launches it."""
    import triton

    tuned = triton.autotune(configs, key=["seq_q", "seq_k"])(kernel())
    q, k, v = inputs
    output = torch.empty_like(q)
    strides = [step for tensor in (q, k, v, output) for step in tensor.stride()[:3]]
    sizes = (problem.heads, problem.heads_kv, problem.seq_q, problem.seq_k)
    fixed = {"HEAD_DIM": problem.head_dim, "CAUSAL": int(problem.causal)}

    def launch() -> torch.Tensor:
        def grid(meta: dict[str, int]) -> tuple[int]:
            return (triton.cdiv(problem.seq_q, meta["BLOCK_M"]) * problem.batch * problem.heads,)

        tuned[grid](q, k, v, output, *strides, *sizes, problem.scale, **fixed)
        return output

    launch()
    best = tuned.best_config
    found = {**best.kwargs, "NUM_WARPS": best.num_warps, "STAGES": best.num_stages}
    return found, kept(launch)


def variant(problem: str, parameters: dict[str, Any], inputs: Tensors) -> tuple[Forward, torch.Tensor]:
    """A forward of that point of the space, and its answer. Raises RuntimeError."""
    bench = Workbench(load_space("sdpa_cuda", problems=[problem]))
    index = bench.space.index_of(parameters)
    built = None if index is None else bench.build_all([index])[0]
    if not isinstance(built, Artifact):
        raise RuntimeError("no point of the space" if built is None else built.detail)
    forward, outputs = variant_forward(built, SdpaProblem.parse(problem), [inputs])
    forward(0)
    return forward, outputs[0]


def raced(row: Figures, rounds: int, configs: list[Any]) -> Figures:
    """The figures of one tuned row."""
    problem = SdpaProblem.parse(row["problem"])
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    ours, answer = variant(row["problem"], row["parameters"], inputs)
    choice, jit = chosen(problem, inputs, configs)
    built, other = variant(row["problem"], {"IMPL": "triton", **choice}, inputs)
    agrees(jit(0), answer)
    agrees(other, answer)
    forwards = {"ours": ours, "triton": built, "jit": jit, "cudnn": baseline_forward("cudnn", problem, [inputs])}
    taken = race({name: timer(forward, 1) for name, forward in forwards.items()}, rounds)
    return {
        "parameters": row["parameters"],
        "autotune": choice,
        "us": {name: spread(us) for name, us in taken.items()},
        "speedup": {name: over(us, taken["ours"]) for name, us in taken.items() if name != "ours"},
    }


def main() -> None:
    """Prints a line a problem and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="?", default=Path("docs/results/tuned_wgmma.json"))
    parser.add_argument("--problems", default=[], metavar="TEXT", action="append", help="in place of the six")
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--configs", type=int, default=36, help="of the tutorial's, the first so many")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = torch.cuda.get_device_name()
    tuned = rows_of(given.rows, given.problems or list(SIX), device)
    holds.measured([row["problem"] for row in tuned], "variant that was tuned on this device")
    rows = []
    for row in tuned:
        figures = {
            "problem": row["problem"],
            "device": device,
            **raced(row, given.rounds, configurations(given.configs)),
        }
        rows.append(figures)
        said = {name: f"{each['mid']:.3f}" for name, each in figures["speedup"].items()}
        print(row["problem"], "ours is faster by", said, figures["autotune"], flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps({"command": command_line(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
