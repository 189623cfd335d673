"""What calls cost whose lengths are new: each call by itself, and a decoder whose cache grows by one a step.

    python -m benchmarks.inference.new_lengths best.json --out docs/results/new_lengths_cpu.json
    python -m benchmarks.inference.new_lengths best.json --out docs/results/new_lengths_cuda.json

The export is one that serves none of these calls, such as one of another head dimension: torch computes them all, and
what is ours is what they take longer. On the device that the export is for, microseconds of the host are taken of the
first, the second, and later calls of each of many lengths, with torch's function and through `load`: of lengths of
which the export serves none, of other lengths of the export's smallest problem ("near"), and of that problem itself,
which a variant serves. Before them torch's function is called once at each length ("planning"): cuDNN plans each new
one, and who comes next finds the processor's caches as that leaves them. Then the GPT of the examples generates at
batch 1 with a cache that grows, and does so several times, each time with a function that knows nothing of the calls of
before. At each step the arms are in turns, in random order, each with a cache of its own, and torch's function is two
of them: what the second one takes longer than the first is what this comparison cannot tell. Before them torch's
function takes the step untimed. A step counts with its median over the times.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache

import autotuner
from autotuner.devices import DEVICES, Wishes
from autotuner.ops import OPS
from benchmarks.inference.host_time import smallest
from benchmarks.provenance import provenance
from examples.gpt.gpt import gpt

NAME = "autotuner_new_lengths"
CALLS = ("first", "second", "third", "later")
"""Of a length; a model's layers make the later ones."""
TORCH, OURS, AGAIN = "torch", "ours", "torch_again"
LATER, FUNCTIONS = 8, 12
"""Calls of a length that count as later ones, and functions of one export whose first call is timed."""
Call = Callable[..., Any]
Tensors = tuple[Tensor, ...]


def of_each_length(arms: dict[str, Call], lengths: range, like: Tensors) -> dict[str, dict[str, float]]:
    """Of each arm the median microseconds of the host, over the lengths of K and V, of the calls of one length in turn.
    At each length the arms follow each other: what else the host does for a while meets both."""
    q, *pair = like

    def call(function: Call, length: int) -> Call:
        k, v = (each.new_empty(*each.shape[:2], length, each.shape[3]).normal_() for each in pair)
        return partial(function, torch.randn_like(q), k, v, enable_gqa=True)

    planning = [host_us(call(arms[TORCH], length), q.device.type) for length in lengths]
    taken: dict[str, list[list[float]]] = {name: [] for name in arms}
    for length in lengths:
        for name, function in arms.items():
            taken[name].append(calls_us(call(function, length), q.device.type))
    return {"planning": medians([[each] for each in planning]), **{name: medians(us) for name, us in taken.items()}}


def calls_us(call: Callable[[], object], device: str) -> list[float]:
    """Of the first, second and third call, and the median of later ones."""
    found = [host_us(call, device) for _ in range(3 + LATER)]
    return [*found[:3], median(found[3:])]


def medians(found: list[list[float]]) -> dict[str, float]:
    return {name: round(median(us), 2) for name, us in zip(CALLS, zip(*found, strict=True), strict=False)}


def host_us(call: Callable[[], object], device: str) -> float:
    """Of one call, without the wait for what it launched."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - started)


def served_us(ours: Any, inputs: list[Tensors], options: dict[str, Any]) -> dict[str, float]:
    """Of a problem that a variant serves, the calls in turn; on a CPU they compute it. Several functions of the same
    export know nothing of each other's calls. All of them and their inputs are made before: that this fills the
    processor's caches is no part of a call."""
    make, given = ours.made_by
    fresh = [make(*given) for _ in inputs]
    return medians(
        [calls_us(partial(each, *of, **options), of[0].device.type) for each, of in zip(fresh, inputs, strict=True)]
    )


class Decoder:
    """The GPT, whose attention calls the function that has the turn."""

    def __init__(self, layers: int, device: str, dtype: torch.dtype, heads: int = 12) -> None:
        self.function: Call = torch.nn.functional.scaled_dot_product_attention
        self.model: Any = gpt(layers, heads).to(device, dtype)
        AttentionInterface.register(NAME, self._attention)
        AttentionMaskInterface.register(NAME, lambda **_: None)
        self.model.set_attn_implementation(NAME)

    def _attention(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: None, scaling: float | None = None, **_: Any
    ) -> tuple[Tensor, None]:
        """As transformers calls torch's function for one text without padding."""
        causal, grouped = query.shape[2] > 1, query.shape[1] != key.shape[1]
        found = self.function(query, key, value, is_causal=causal, scale=scaling, enable_gqa=grouped)
        return found.transpose(1, 2).contiguous(), None

    def step(self, function: Call, token: Tensor, cache: Any) -> float:
        """Seconds of one token."""
        self.function = function
        if token.is_cuda:
            torch.cuda.synchronize()
        started = time.perf_counter()
        self.model(token, past_key_values=cache, use_cache=True, logits_to_keep=1)
        if token.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    def empty(self, room: int) -> Any:
        """A cache without keys; one that grows needs no room."""
        return DynamicCache()

    def cache(self, batch: int, length: int, room: int) -> Any:
        """A cache of random keys and values."""
        config, weight = self.model.config, self.model.lm_head.weight
        heads, head_dim = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        found = self.empty(room)
        for layer in range(config.num_hidden_layers if length else 0):
            pair = torch.randn(2, batch, heads, length, head_dim, device=weight.device, dtype=weight.dtype)
            found.update(*pair.unbind(), layer)
        return found


def growing(decoder: Decoder, arms: dict[str, Call], until: int, steps: int, device: str) -> dict[str, list[float]]:
    """Seconds of each step of each arm. After the last one the cache has `until` keys."""
    untimed, *timed = (decoder.cache(1, until - steps, until) for _ in range(1 + len(arms)))
    caches = dict(zip(arms, timed, strict=True))
    taken: dict[str, list[float]] = {name: [] for name in arms}
    token = torch.ones(1, 1, dtype=torch.int64, device=device)
    for _ in range(steps):
        decoder.step(arms[TORCH], token, untimed)
        for name in random.sample(list(arms), len(arms)):
            taken[name].append(decoder.step(arms[name], token, caches[name]))
    return taken


def compared(times: list[dict[str, list[float]]]) -> dict[str, Any]:
    """How many times as long each arm's steps take as torch's, by the medians of each step over the times: of all
    together, and of a step the median and the quartiles."""
    of_steps = {
        name: [median(each) for each in zip(*(taken[name] for taken in times), strict=True)] for name in times[0]
    }
    found: dict[str, Any] = {"times": len(times), "seconds": {name: round(sum(us), 4) for name, us in of_steps.items()}}
    for name, said in ((OURS, ""), (AGAIN, f"{AGAIN}_")):
        ratios = [one / torchs for one, torchs in zip(of_steps[name], of_steps[TORCH], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        found[f"{said}times_as_long"] = round(sum(of_steps[name]) / sum(of_steps[TORCH]), 4)
        found[f"{said}of_a_step"] = {"low": round(low, 4), "median": round(middle, 4), "high": round(high, 4)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("--until", type=int, default=2048, help="keys of the cache after the last step")
    parser.add_argument("--steps", type=int, default=128, help="tokens that the decoder generates each time")
    parser.add_argument("--lengths", type=int, default=256, help="below which each second one is called by itself")
    parser.add_argument("--times", type=int, default=5, help="that it does so")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    ours = autotuner.load(said.export)
    device, dtype = ours.table.device, getattr(torch, said.dtype)
    torchs = torch.nn.functional.scaled_dot_product_attention
    arms: dict[str, Call] = {TORCH: torchs, OURS: ours}
    host: dict[str, dict[str, float]] = {}

    def keep(name: str, us: dict[str, float]) -> None:
        host[name] = us
        print(f"{name}, microseconds:", us, file=sys.stderr, flush=True)

    with torch.no_grad():
        op, problem = OPS[ours.table.op], smallest(ours)
        drawn = [op.tensors().inputs(problem, op.ordinary, seed) for seed in range(FUNCTIONS)]
        inputs = [tuple(each.to(device) for each in tensors) for tensors in drawn]
        keep("served", served_us(ours, inputs, op.signature.called((), op.torch.options(problem))[1]))
        ours.reset_counters()
        alone = tuple(torch.empty(1, heads, 1, 64, device=device, dtype=dtype) for heads in (12, 4, 4))
        for like, more, first in ((alone, "", 2), (inputs[0][:3], " near", 3)):  # who tunes hardly takes an odd length
            of_each_length(arms, range(5 - first, 40, 2), like)  # once: what is slow once a process
            for name, us in of_each_length(arms, range(first, said.lengths, 2), like).items():
                keep(name + more, us)
        decoder, (make, given) = Decoder(said.layers, device, dtype), ours.made_by
        times = []
        for _ in range(said.times):
            arms = {TORCH: torchs, OURS: make(*given), AGAIN: torchs}
            times.append(growing(decoder, arms, said.until, said.steps, device))
            print("growing:", found := compared(times), file=sys.stderr, flush=True)
    if ours.served:
        parser.error(f"{said.export} serves some of these calls; take one that serves none")
    document = {
        **provenance([said.export]),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": DEVICES[device].choose(Wishes()).device.name,
        "dtype": said.dtype,
        "layers": said.layers,
        "until": said.until,
        "steps": said.steps,
        "host_us": host,
        "growing": found,
    }
    text = json.dumps(document, indent=1) + "\n"
    if said.out is not None:
        said.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
