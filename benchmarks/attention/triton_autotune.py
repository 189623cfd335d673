"""Puts what `triton.autotune` chooses for the shipped Triton kernel beside what is tuned here, both by one clock.

    python -m benchmarks.attention.triton_autotune [docs/results/tuned_wgmma.json] [--problems TEXT]... [--rounds N]
        [--configs N] [--json FILE]

`triton.autotune` times its own configurations, those of Triton's tutorial on attention, by its own clock, as it does in
a program; before that all of them are compiled side by side. Its choice runs as Triton launches it (`jit`) and, where
the default space has that point, as this project builds it (`triton`), beside the tuned variant of the row (`ours`) and
cuDNN: graphs of some milliseconds in random order, as peers.py replays them. Needs Triton, and a GPU that nothing else
uses.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from autotuner.devices.environment import usable_cpus
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


def arguments(problem: SdpaProblem, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
    """Of a call: those that it is given by place, and its constants."""
    strides = [step for tensor in tensors for step in tensor.stride()[:3]]
    sizes = (problem.heads, problem.heads_kv, problem.seq_q, problem.seq_k)
    return [*tensors, *strides, *sizes, problem.scale], {"HEAD_DIM": problem.head_dim, "CAUSAL": int(problem.causal)}


def compile_one(text: str, place: int, most: int) -> None:
    """One configuration, into Triton's cache, where `chosen` finds it. What cannot be compiled is told there."""
    from triton.runtime.errors import OutOfResources, PTXASError

    problem, config = SdpaProblem.parse(text), configurations(most)[place]
    q, k, v = (torch.empty(each.shape, dtype=each.dtype) for each in inputs_of(problem))
    given, fixed = arguments(problem, (q, k, v, torch.empty_like(q)))
    named = [each.dtype if isinstance(each, torch.Tensor) else each for each in given]
    try:
        kernel().warmup(*named, grid=(1,), **fixed, **config.all_kwargs())
    except (OutOfResources, PTXASError) as error:
        print(f"{text}: {config}: {error}", flush=True)


def compile_all(texts: Sequence[str], most: int) -> None:
    """Every configuration for every problem, side by side."""
    spawn = multiprocessing.get_context("spawn")
    tasks = [(text, place, most) for text in texts for place in range(len(configurations(most)))]
    with ProcessPoolExecutor(usable_cpus(), spawn) as pool:
        list(pool.map(compile_one, *zip(*tasks, strict=True)))


def inputs_of(problem: SdpaProblem) -> Tensors:
    return op_of(problem).tensors().inputs(problem, "randn", 1)


class Chosen(NamedTuple):
    """What `triton.autotune` found."""

    parameters: dict[str, int]
    forward: Forward
    """As Triton launches it."""
    seconds: float
    """That it took, of which none were for compiling."""


def chosen(problem: SdpaProblem, inputs: Tensors, configs: list[Any]) -> Chosen:
    """The configuration that `triton.autotune` finds fastest."""
    import triton

    tuned = triton.autotune(configs, key=["seq_q", "seq_k"])(kernel())
    output = torch.empty_like(inputs[0])
    given, fixed = arguments(problem, (*inputs, output))

    def launch() -> torch.Tensor:
        def grid(meta: dict[str, int]) -> tuple[int]:
            return (triton.cdiv(problem.seq_q, meta["BLOCK_M"]) * problem.batch * problem.heads,)

        tuned[grid](*given, **fixed)
        return output

    began = time.monotonic()
    launch()
    torch.cuda.synchronize()
    took, best = time.monotonic() - began, tuned.best_config
    found = {**best.kwargs, "NUM_WARPS": best.num_warps, "STAGES": best.num_stages}
    return Chosen(found, kept(launch), took)


def point(problem: str, parameters: dict[str, Any]) -> tuple[Workbench, int]:
    """That point of the space; a parameter that is younger than the row has its first value. Raises RuntimeError."""
    bench = Workbench(load_space("sdpa_cuda", problems=[problem]))
    known = bench.family.implementation("cuda", str(parameters["IMPL"])).parameters
    index = bench.space.index_of({name: values[0] for name, values in known.items()} | parameters)
    if index is None:
        raise RuntimeError(f"{parameters} is no point of the space")
    return bench, index


def built(bench: Workbench, index: int) -> Artifact:
    """Raises RuntimeError."""
    found = bench.build_all([index])[0]
    if not isinstance(found, Artifact):
        raise RuntimeError(found.detail)
    return found


def variant(problem: str, parameters: dict[str, Any], inputs: Tensors) -> tuple[Forward, torch.Tensor]:
    """A forward of that point, and its answer. Raises RuntimeError."""
    forward, outputs = variant_forward(built(*point(problem, parameters)), SdpaProblem.parse(problem), [inputs])
    forward(0)
    return forward, outputs[0]


def raced(row: Figures, rounds: int, configs: list[Any]) -> Figures:
    """The figures of one tuned row."""
    problem = SdpaProblem.parse(row["problem"])
    inputs = moved(inputs_of(problem), "cuda")
    ours, answer = variant(row["problem"], row["parameters"], inputs)
    choice = chosen(problem, inputs, configs)
    agrees(choice.forward(0), answer)
    forwards = {"ours": ours, "jit": choice.forward, "cudnn": baseline_forward("cudnn", problem, [inputs])}
    try:
        forwards["triton"], other = variant(row["problem"], {"IMPL": "triton", **choice.parameters}, inputs)
        agrees(other, answer)
    except RuntimeError as error:
        print(f"{problem}: {choice.parameters} is not built here: {error}", flush=True)
    taken = race({name: timer(forward, 1) for name, forward in forwards.items()}, rounds)
    return {
        "parameters": row["parameters"],
        "autotune": choice.parameters,
        "autotune_s": round(choice.seconds, 2),
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
    points = [point(row["problem"], row["parameters"]) for row in tuned]
    with ThreadPoolExecutor() as pool:  # so that each is in the cache when its turn comes
        list(pool.map(built, *zip(*points, strict=True)))
    compile_all([row["problem"] for row in tuned], given.configs)
    rows = []
    for row in tuned:
        figures = {
            "problem": row["problem"],
            **raced(row, given.rounds, configurations(given.configs)),
        }
        rows.append(figures)
        said = {name: f"{each['mid']:.3f}" for name, each in figures["speedup"].items()}
        print(row["problem"], "ours is faster by", said, figures["autotune"], flush=True)
        if given.json is not None:
            told = {"command": command_line(), "when": datetime.now(UTC).isoformat(timespec="seconds")}
            told |= {"device": device, "torch": torch.__version__, "triton": metadata.version("triton")}
            given.json.write_text(json.dumps({**told, "configurations": given.configs, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
