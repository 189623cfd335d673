"""How much faster a decoder generates whose attention a table serves.

    python -m benchmarks.inference.generate best.json --batch 1 8 --out docs/results/generate_cpu.json

The GPT of the examples goes on behind a text of random keys and values, eagerly, with torch's function, with ours, and
with an attention that computes nothing and gives back Q: no attention makes the loop faster than that. The cache grows
by one a step, or is static: then torch's is what transformers has for it, and ours what `autotuner.use` makes of the
model. A growing cache on a GPU is also given to torch's flash backend, which plans nothing for a new length. The arms
take turns at each step, in random order, each with a cache of its own.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import product
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface, StaticCache
from transformers.masking_utils import sdpa_mask

import autotuner
from autotuner.devices import DEVICES, Wishes
from benchmarks.inference.host_time_pages import CACHES, NOTHING, loops
from benchmarks.inference.new_lengths import Decoder
from benchmarks.provenance import provenance

NAMES = ("whole", "low", "median", "high")
WARM = 3
"""First steps of a loop, which do not count."""


def nothing(query: Tensor, *_: Any, **__: Any) -> Tensor:
    """Attention that computes nothing."""
    return query


def flash(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """torch's function by its flash backend."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)


class Static(Decoder):
    """The GPT with static caches, whose attention and masks are those of the name that has the turn."""

    def __init__(self, layers: int, device: str, dtype: torch.dtype, heads: int) -> None:
        super().__init__(layers, device, dtype, heads)
        AttentionInterface.register(NOTHING, lambda _, query, *__, **___: (query.transpose(1, 2).contiguous(), None))
        AttentionMaskInterface.register(NOTHING, sdpa_mask)

    def step(self, function: Any, token: Tensor, cache: Any) -> float:
        if isinstance(function, str):
            self.model.set_attn_implementation(function)
        else:
            autotuner.use(self.model, function)
        return super().step(function, token, cache)

    def empty(self, room: int) -> Any:
        return StaticCache(config=self.model.config, max_cache_len=room)


def generated(decoder: Decoder, arms: dict[str, Any], batch: int, until: int, steps: int) -> dict[str, Any]:
    """Seconds of the steps of each arm, and how many times as long torch's take as those of the others: over all, and
    of each step the quartiles."""
    caches = {name: decoder.cache(batch, until - steps, until) for name in arms}
    token = torch.ones(batch, 1, dtype=torch.int64, device=decoder.model.device)
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(steps):
        for name in random.sample(list(arms), len(arms)):
            taken[name].append(decoder.step(arms[name], token, caches[name]))
    kept = {name: each[WARM:] for name, each in taken.items()}
    times = {}
    for name in (each for each in arms if each != "torch"):
        low, middle, high = quantiles([one / other for one, other in zip(kept["torch"], kept[name], strict=True)], n=4)
        whole = sum(kept["torch"]) / sum(kept[name])
        times[name] = {name: round(x, 4) for name, x in zip(NAMES, (whole, low, middle, high), strict=True)}
    seconds = {name: round(sum(each), 4) for name, each in kept.items()}
    return {"batch": batch, "until": until, "steps": steps, "seconds": seconds, "times_as_fast": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--cache", nargs="+", default=CACHES, choices=CACHES)
    parser.add_argument("--until", type=int, default=2048, help="keys of the cache after the last step")
    parser.add_argument("--steps", type=int, default=256, help="tokens that the decoder generates")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    ours = autotuner.load(said.export)
    device = ours.table.device
    torchs = torch.nn.functional.scaled_dot_product_attention
    flashs = {"flash": flash} if device == "cuda" else {}
    arms: dict[str, dict[str, Any]] = {
        "growing": {"torch": torchs, "ours": ours, NOTHING: nothing, **flashs},
        "static": {"torch": "sdpa", "ours": ours, NOTHING: NOTHING},
    }
    document: dict[str, Any] = {
        **provenance([said.export]),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": DEVICES[device].choose(Wishes()).device.name,
        **({"threads": torch.get_num_threads()} if device == "cpu" else {}),
        "dtype": said.dtype,
        "layers": said.layers,
        "heads": said.heads,
        "ranges": [f"{each.low} to {each.high}" for each in ours.table.ranges],
        "loops": [],
    }
    with torch.no_grad():
        for cache, batch in product(said.cache, said.batch):
            ours.reset_counters()
            kind = Static if cache == "static" else Decoder
            decoder = kind(said.layers, device, getattr(torch, said.dtype), said.heads)
            found = generated(decoder, arms[cache], batch, said.until, said.steps)
            kept = {"cache": cache, **found, "served": ours.served, "counters": dict(ours.counters)}
            document["loops"].append(kept)
            if said.out is not None:
                said.out.write_text(json.dumps(document, indent=1) + "\n")
            print(loops({**document, "loops": [kept]}), flush=True)


if __name__ == "__main__":
    main()
