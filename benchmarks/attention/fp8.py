"""Errors and times of IMPL = wgmma_fp8 beside FlashAttention 3's FP8, and beside attention in bfloat16, on this GPU.

    python -m benchmarks.attention.fp8 [--json docs/results/fp8_attention.json] [--hold]
        [--only NAME] ... [--seconds S]

Errors are relative root mean squares from float64 attention of what the FP8 inputs stand for, on the inputs that FP8
gets wrong most easily. Times are medians of replays of a graph of some milliseconds, in random order; the kernel that
transposes V is in them. Needs a GPU of sm_90 that nothing else uses. Where FlashAttention 3 is not installed, it is
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import sdpa
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.sdpa_fp8.quantising import quantised
from autotuner.ops.sdpa_fp8.tensors import BASELINES, dequantised, reference
from autotuner.ops.tensors import Tensors
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from benchmarks import holds
from benchmarks.attention.fp8_pages import FA3, WORST, on_grid
from benchmarks.provenance import provenance

Point = dict[str, int | str]
POINT: Point = {
    "CONSUMERS": 2,
    "BLOCK_N": 128,
    "STAGES": 3,
    "SCHEDULE": "dynamic",
    "PING_PONG": 2,
    "Q_FROM": "registers",
    "SOFTMAX": "spec",
    "FMA_SHARE": 3,
    "OFFSET": 4,
    "EARLY_LAUNCH": 1,
}
CHANGES: dict[str, Point] = {
    "share 3": {},
    "share 3, not early": {"EARLY_LAUNCH": 0},
    "share 3, two stages": {"STAGES": 2},
    "share 3, shared": {"Q_FROM": "shared"},
    "share 3, no turns": {"PING_PONG": 0},
    "share 3, turns at the products": {"PING_PONG": 1},
    "share 2": {"FMA_SHARE": 2},
    "share 4": {"FMA_SHARE": 4},
    "exact": {"SOFTMAX": "exact"},
}
BFLOAT16: Point = {
    "BLOCKS_SM": 1,
    "BLOCK_N": 128,
    "CONSUMERS": 2,
    "EARLY_START": 0,
    "OVERLAP": 1,
    "O_STAGING": "query",
    "PING_PONG": 1,
    "Q_BUFFERS": 2,
    "Q_FROM": "registers",
    "SCHEDULE": "dynamic",
    "SOFTMAX": "spec",
    "STAGES": 2,
}
"""A point of wgmma in bfloat16, among the fastest at these problems."""
TIMED = ("(1,32:8,8192,128)", "(4,32:8,2048,128)")
GRID = tuple(f"({16384 // length},16,{length},128)" for length in (512, 1024, 2048, 4096, 8192, 16384))
"""The sizes of FlashAttention 3's own grid at this head dimension: 16,384 rows, 2,048 columns."""
AMONG = 4
"""Of the points those that are fastest at the problems above are timed on the grid."""
WAIT = 1_000_000
"""Cycles for which the device waits before a replay."""
MASKS = ("full", "causal")
KINDS = {
    "777": (2, 1, 777),
    "2048": (16, 4, 2048),
    "8192": (2, 1, 8192),
    "sink": (4, 2, 1024),
    "times 60": (2, 2, 1024),
    "values near 1": (2, 2, 4096),
}
"""Heads, heads of K and V, length: standard normal; a first key with 8.5 added to its scores; scores times 60; values
of 1 with a tenth of that for noise."""
REPLAY_FLOPS = 2e12
"""Of the forwards in one graph: two milliseconds."""
FASTER, FASTER_ON_GRID, FASTER_BFLOAT16 = 1.15, 1.1, 1.3
"""What must hold beside WORST: the times that FlashAttention 3 takes, in the mean over its grid too, and wgmma in
bfloat16 at the first."""


def drawn(kind: str, seed: int = 1) -> Tensors:
    """Q, K, V and their descales of a problem of errors, on the GPU."""
    heads, heads_kv, length = KINDS[kind]
    generator = torch.Generator("cuda").manual_seed(seed)
    q, k, v = (torch.randn(1, n, length, 128, device="cuda", generator=generator) for n in (heads, heads_kv, heads_kv))
    if kind == "sink":
        q[..., 0], k[:, :, 0, 0] = 8.0, 12.0
    elif kind == "times 60":
        q *= 60
    elif kind == "values near 1":
        v = 1 + 0.1 * v
    return of_16_bits(q, k, v)


def of_16_bits(q: Tensor, k: Tensor, v: Tensor) -> Tensors:
    """What is stored, and the descales."""
    pairs = [quantised(x, k.shape[1]) for x in (q, k, v)]
    return (*(x for x, _ in pairs), *(descale for _, descale in pairs))


class Launcher:
    """A built variant on some inputs, with an output and a workspace of its own."""

    def __init__(self, built: Artifact, problem: Problem, tensors: Tensors) -> None:
        self._variant, self._problem, self._tensors = LoadedVariant(built), problem, tensors
        self._bytes = self._variant.workspace_bytes(problem)
        self._workspace = torch.full((self._bytes + 64,), 0x7F, device="cuda", dtype=torch.uint8)
        self.output = torch.full(tensors[0].shape, torch.nan, device="cuda", dtype=torch.bfloat16)

    def __call__(self) -> Tensor:
        stream, workspace = torch.cuda.current_stream().cuda_stream, self._workspace.data_ptr()
        status = self._variant.run(
            self._problem, self._tensors, (self.output,), workspace, self._bytes if self._bytes else 64, stream
        )
        assert status == 0, status
        return self.output


def built_all(names: list[str], problems: list[SdpaFp8Problem]) -> dict[tuple[str, bool], Artifact]:
    """Each point for both masks; those that do not compile are said and left out."""
    toolchain, family = CudaToolchain.discover(architecture("sm_90")), Family.find("sdpa_fp8")

    def one(asked: tuple[str, SdpaFp8Problem]) -> Any:
        name, problem = asked
        parameters = {**POINT, **CHANGES[name]}
        variant = Variant(family="sdpa_fp8", backend="cuda", impl="wgmma_fp8", parameters=parameters)
        return build(family, variant, problem, toolchain)

    asked = [(name, problem) for name in names for problem in problems]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = zip(asked, pool.map(one, asked), strict=True)
    artifacts = {}
    for (name, problem), each in found:
        if isinstance(each, Artifact):
            artifacts[name, problem.causal] = each
        else:
            print(f"{name}: {each.detail[:300]}")
    return artifacts


def in_bfloat16(problem: SdpaProblem) -> Artifact:
    """wgmma in bfloat16 for the same problem."""
    variant = Variant(family="sdpa", backend="cuda", impl="wgmma", parameters=BFLOAT16)
    made = build(Family.find("sdpa"), variant, problem, CudaToolchain.discover(architecture("sm_90")))
    assert isinstance(made, Artifact), made
    return made


def distance(o: Tensor, exact: Tensor) -> float:
    """The relative root mean square; infinite where it is no number."""
    found = float(torch.linalg.vector_norm(o.double() - exact) / torch.linalg.vector_norm(exact))
    return found if found == found else float("inf")


def errors(artifacts: dict[tuple[str, bool], Artifact]) -> Iterator[dict[str, Any]]:
    """Of each kind of inputs and mask those of every point, and of FlashAttention 3."""
    for kind, (heads, heads_kv, length) in KINDS.items():
        tensors = drawn(kind)
        for causal in (False, True):
            mask = MASKS[causal]
            problem = SdpaFp8Problem.parse(f"(1,{heads}:{heads_kv},{length},128) bfloat16 {mask}")
            exact = reference(problem, tensors)[0]
            row: dict[str, Any] = {"inputs": kind, "mask": mask}
            try:
                row["fa3_fp8"] = distance(BASELINES["fa3_fp8"].answer(problem, tensors)[0], exact)
            except RuntimeError as error:
                print(error)
            for (name, of_mask), built in artifacts.items():
                if of_mask == causal:
                    row[name] = distance(Launcher(built, problem, tensors)(), exact)
            print(f"{kind:>14} {mask:6}", {name: round(x, 4) for name, x in row.items() if isinstance(x, float)})
            yield row


def replayed(forward: Callable[[], object], calls: int) -> Callable[[], float]:
    """A timer of `calls` captured forwards: microseconds of one."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        forward()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                forward()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed() -> float:
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        return float(1000 * first.elapsed_time(last) / calls)

    return timed


def times(
    text: str, artifacts: dict[tuple[str, bool], Artifact], in_16_bits: dict[bool, Artifact], seconds: float
) -> dict[str, Any]:
    """Median microseconds of each, in turns."""
    problem = SdpaFp8Problem.parse(text)
    tensors = of_16_bits(
        *(
            torch.randn(problem.batch, heads, problem.seq_q, 128, device="cuda")
            for heads in (problem.heads, problem.heads_kv, problem.heads_kv)
        )
    )
    plain = SdpaProblem.parse(text)
    wide = tuple(x.contiguous() for x in dequantised(problem, tensors, torch.bfloat16))
    arms: dict[str, Callable[[], object]] = {
        "wgmma bfloat16": Launcher(in_16_bits[plain.causal], plain, wide),
        "cudnn bfloat16": partial(sdpa(plain, "cudnn"), *wide),
        "fa3_fp8": partial(BASELINES["fa3_fp8"].forward(problem), *tensors),
    }
    arms |= {
        name: Launcher(built, problem, tensors)
        for (name, causal), built in artifacts.items()
        if causal == problem.causal
    }
    timers: dict[str, Callable[[], float]] = {}
    for name, forward in arms.items():
        try:
            timers[name] = replayed(forward, max(2, int(REPLAY_FLOPS / problem.flops)))
        except RuntimeError as error:
            print(name, error)
    taken: dict[str, list[float]] = {name: [] for name in timers}
    draw, until = random.Random(7), time.monotonic() + seconds
    while time.monotonic() < until or not all(taken.values()):
        for name in draw.sample(list(timers), len(timers)):
            torch.cuda._sleep(WAIT)  # the graph is there before the first event
            taken[name].append(timers[name]())
    us = {name: median(each[len(each) // 5 :]) for name, each in taken.items()}
    print(problem, {name: round(each, 1) for name, each in us.items()}, f"{len(taken['wgmma bfloat16'])} replays")
    return {"problem": str(problem), "flops": problem.flops, "us": us}


def right(document: dict[str, Any]) -> list[str]:
    """Points whose errors are small enough."""
    names = [name for name in CHANGES if all(name in row for row in document["errors"])]
    return [name for name in names if all(row[name] <= WORST * row.get(FA3, torch.inf) for row in document["errors"])]


def unmet(document: dict[str, Any]) -> Iterator[str]:
    """What does not hold of the best point at each problem: the one of the least time whose errors are small enough."""
    names = right(document)
    if not names:
        yield f"no point has errors of at most {WORST} times FlashAttention 3's"
        return
    for place, row in enumerate(document["times"]):
        us = row["us"]
        best = min(us[name] for name in names if name in us)
        if best * FASTER > us.get(FA3, torch.inf):
            yield f"{row['problem']}: {us[FA3] / best:.2f} times as fast as FlashAttention 3's FP8"
        if place == 0 and best * FASTER_BFLOAT16 > us["wgmma bfloat16"]:
            yield f"{row['problem']}: {us['wgmma bfloat16'] / best:.2f} times as fast as wgmma in bfloat16"
    if 0 < on_grid(document) < FASTER_ON_GRID:
        yield f"{on_grid(document):.2f} times as fast as FlashAttention 3's FP8 in the mean over its grid"


def main() -> None:
    """Measures, keeps and says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", choices=list(CHANGES), help="a point, by name")
    parser.add_argument("--seconds", type=float, default=4.0, help="of replays at each problem")
    holds.add_option(parser)
    given = parser.parse_args()
    names = given.only or list(CHANGES)
    masks = [SdpaFp8Problem.parse(f"(1,8:2,777,128) bfloat16 {mask}") for mask in MASKS]
    plain = [SdpaProblem.parse(f"{TIMED[0]} bfloat16 {mask}") for mask in MASKS]
    with ThreadPoolExecutor(len(plain)) as pool:  # beside those of FP8
        wide = pool.map(in_bfloat16, plain)
        artifacts = built_all(names, masks)
        in_16_bits = {problem.causal: built for problem, built in zip(plain, wide, strict=True)}
    document: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, **provenance()}
    document["errors"] = list(errors(artifacts))
    document["times"] = [
        times(f"{sizes} bfloat16 {mask}", artifacts, in_16_bits, given.seconds) for sizes in TIMED for mask in MASKS
    ]
    names = sorted(right(document) or names, key=lambda name: sum(row["us"][name] for row in document["times"]))[:AMONG]
    few = {each: built for each, built in artifacts.items() if each[0] in names}
    document["grid"] = [
        times(f"{sizes} bfloat16 {mask}", few, in_16_bits, given.seconds / 6) for sizes in GRID for mask in MASKS
    ]
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    faults = list(unmet(document))
    print("\n".join(faults) or "all holds")
    if given.hold:
        holds.require(faults)


if __name__ == "__main__":
    main()
