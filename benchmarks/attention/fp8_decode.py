"""Times one query a sequence on an FP8 cache beside the same cache in bfloat16, on this GPU, and writes what it found.

    python -m benchmarks.attention.fp8_decode [--json docs/results/fp8_decode.json] [--rounds 41] [--points 40]
        [--shapes 1,2] [--points-of FILE]

Of each shape and cache it tries points of `decode`, keeps the fastest that is right, and times both in one run beside
FlashAttention 3 in both (its Q is in FP8 too), FlashInfer in FP8 and cuDNN: graphs of forwards, replayed in random
order, warm. The caches are larger than any cache of the device. With --points-of it tries the points alone that were
the fastest in FILE, which an earlier run wrote. Needs a GPU of sm_89 or newer that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from autotuner.gate.cases import Case
from autotuner.gate.tolerance import compute_truth
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.sdpa_fp8.quantising import quantised_inputs, stored
from autotuner.ops.tensors import Tensors
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from benchmarks.attention.decode import SEARCH_ROUNDS, label_of, medians, points_of, right, timers
from benchmarks.attention.interleaved import (
    Figures,
    Forward,
    baseline_forward,
    race,
    ratios,
    spread,
    variant_forward,
)
from benchmarks.attention.peers import kept
from benchmarks.provenance import provenance

SHAPES = ("(32,32:8,1x4096,128)", "(8,32:8,1x16384,128)", "(64,64:8,1x2048,128)")
FP8, BFLOAT16 = "decode on FP8", "decode on bfloat16"
FA3_FP8, FA3, CUDNN = "FlashAttention 3 in FP8", "FlashAttention 3 on bfloat16", "cuDNN on bfloat16"
FLASHINFER = "FlashInfer in FP8 (one descale)"
PAGE = 64
"""Keys of a page of FlashInfer's cache."""
FAR = 0.1
"""Two answers of the same numbers in FP8 and in 16 bits differ by less, in the root mean square."""


def fastest(space: str, problem: SdpaProblem, most: int, only: str | None) -> tuple[str, Forward, Tensors]:
    """Of `most` points of decode the fastest that is right, of those with the label `only` where one is given: its
    label, its forward and the inputs. Exits where there is none."""
    workbench = Workbench(load_space(space, problems=[str(problem)]).only("decode"))
    chosen = points_of(workbench, int(workbench.device.facts["MULTIPROCESSORS"]), most)
    if only is not None:
        chosen = [index for index in chosen if label_of(workbench.space.point(index)) == only]
    truth = compute_truth(Case(name=str(problem), problem=problem, distribution="randn"), 1, "cuda")
    forwards: dict[str, Forward] = {}
    for index, built in zip(chosen, workbench.build_all(chosen), strict=True):
        if not isinstance(built, Artifact):
            continue
        forward, outputs = variant_forward(built, problem, [truth.inputs])
        forward(0)
        torch.cuda.synchronize()
        if right(outputs, truth):
            forwards[label_of(workbench.space.point(index))] = forward
    if not forwards:
        raise SystemExit(f"{problem}: no point of decode is right")
    us = medians(forwards, 1, SEARCH_ROUNDS)
    best = min(us, key=us.__getitem__)
    return best, forwards[best], truth.inputs


def fa3(q: Tensor, k: Tensor, v: Tensor, **descales: Tensor) -> Forward:
    """FlashAttention 3's forward with as many splits as it chooses."""
    attention: Any = import_module("fa3_fwd_interface").flash_attn_func
    heads_last = [x.transpose(1, 2) for x in (q, k, v)]
    return kept(lambda: attention(*heads_last, num_splits=0, **descales))


def fa3_in_fp8(q: Tensor, k: Tensor, v: Tensor) -> Forward:
    """The same, of the same numbers in FP8."""
    numbers, descales = quantised_inputs(q, k, v)
    return fa3(*numbers, **descales)


def flashinfer_in_fp8(q: Tensor, k: Tensor, v: Tensor) -> Forward:
    """FlashInfer's decode from pages, on tensor cores or beside them, whichever is faster here. The backend of Hopper,
    which it would choose, does not compile: it has no product of 16 bits and FP8. One number stands for all heads'
    descales; it is 1 here, which takes no time. Raises ValueError for a wrong answer."""
    wanted = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    batch, heads_kv, keys, head_dim = k.shape
    pages = keys // PAGE
    cache = tuple(stored(x).unflatten(2, (pages, PAGE)).transpose(1, 2).flatten(0, 1).contiguous() for x in (k, v))

    def planned(tensor_cores: bool) -> Forward:
        room = torch.zeros(128 << 20, dtype=torch.uint8, device=q.device)
        wrapper = import_module("flashinfer").BatchDecodeWithPagedKVCacheWrapper
        decode = wrapper(room, "HND", use_tensor_cores=tensor_cores, backend="fa2")
        ends = pages * torch.arange(batch + 1, dtype=torch.int32, device=q.device)
        numbers = torch.arange(batch * pages, dtype=torch.int32, device=q.device)
        of_types = {"q_data_type": q.dtype, "kv_data_type": cache[0].dtype}
        decode.plan(ends, numbers, torch.full_like(ends[1:], PAGE), q.shape[1], heads_kv, head_dim, PAGE, **of_types)
        forward = kept(lambda: decode.run(q[:, :, 0], cache)[:, :, None])
        found = forward(0)
        assert isinstance(found, Tensor)
        if not (found - wanted).float().norm() <= FAR * wanted.float().norm():
            raise ValueError("its answer is wrong")
        return forward

    forwards = {"tensor cores": planned(True), "others": planned(False)}
    us = medians(forwards, 1, SEARCH_ROUNDS)
    return forwards[min(us, key=us.__getitem__)]


def timed_at(sizes: str, rounds: int, most: int, points: Mapping[str, str]) -> Figures:
    """The figures of one shape, at the points of these labels where there are any."""
    small, large = SdpaFp8Problem.parse(f"{sizes} bfloat16 full cache"), SdpaProblem.parse(f"{sizes} bfloat16 full")
    of_fp8, on_fp8, _ = fastest("sdpa_fp8_cuda", small, most, points.get(FP8))
    of_bfloat16, on_bfloat16, inputs = fastest("sdpa_cuda", large, most, points.get(BFLOAT16))
    q, k, v = inputs
    sides = {FP8: on_fp8, BFLOAT16: on_bfloat16}
    others: dict[str, Callable[[], Forward]] = {
        FA3_FP8: partial(fa3_in_fp8, q, k, v),
        FLASHINFER: partial(flashinfer_in_fp8, q, k, v),
        FA3: partial(fa3, q, k, v),
        CUDNN: partial(baseline_forward, "cudnn", large, [inputs]),
    }
    for name, make in others.items():
        try:
            sides[name] = make()
            sides[name](0)
        except (ImportError, RuntimeError, TypeError, ValueError) as error:
            sides.pop(name, None)
            print(name, "left out:", str(error).splitlines()[0], flush=True)
    taken = race(timers(sides, 1), rounds)
    return {
        "problem": sizes,
        "points": {FP8: of_fp8, BFLOAT16: of_bfloat16},
        "gigabytes": {FP8: small.bytes / 1e9, BFLOAT16: large.bytes / 1e9},
        "us": {name: spread(us) for name, us in taken.items()},
        "speedup": {name: ratios(us, taken[FP8]) for name, us in taken.items() if name != FP8},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.fp8_decode", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shapes", default=",".join(str(i + 1) for i in range(len(SHAPES))))
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--points-of", type=Path, metavar="FILE")
    given = parser.parse_args()
    earlier: list[Figures] = [] if given.points_of is None else json.loads(given.points_of.read_text())["rows"]
    points = {row["problem"]: row["points"] for row in earlier}
    rows: list[Figures] = []
    for number in map(int, given.shapes.split(",")):
        sizes = SHAPES[number - 1]
        rows.append(timed_at(sizes, given.rounds, given.points, points.get(sizes, {})))
        gained = {name: round(each["median"], 3) for name, each in rows[-1]["speedup"].items()}
        print(rows[-1]["problem"], round(rows[-1]["us"][FP8]["median"], 2), gained, flush=True)
        if given.json is not None:
            where = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
            given.json.write_text(json.dumps({**provenance(), **where, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
