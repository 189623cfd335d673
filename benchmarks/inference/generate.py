"""How much faster a decoder generates whose attention a table serves: its cache grows by one a step.

    python -m benchmarks.inference.generate best.json --batch 1 8 --out docs/results/generate_cpu.json

The GPT of the examples goes on behind a text of random keys and values, eagerly, with torch's function, with ours, and
with an attention that computes nothing and gives back Q: no attention makes the loop faster than that. On a GPU torch's
function is also held to its flash backend, which plans nothing for a new length. The arms take turns at each step, in
random order, each with a cache of its own.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import autotuner
from autotuner.devices import DEVICES, Wishes
from benchmarks.inference.new_lengths import Call, Decoder, cache_of
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


def generated(decoder: Decoder, arms: dict[str, Call], batch: int, until: int, steps: int) -> dict[str, Any]:
    """Seconds of the steps of each arm, and how many times as long torch's take as those of the others: over all, and
    of each step the quartiles."""
    caches = {name: cache_of(decoder, batch, until - steps) for name in arms}
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


def table(*kept: dict[str, Any] | None) -> str:
    """A row a machine and batch."""
    found = [each for each in kept if each is not None]
    if not found:
        return "Not kept yet."
    lines = [
        "| on | batch | keys | of torch's speed | of its flash backend's | without attention, of both | served |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for of, each in ((one, each) for one in found for each in one["loops"]):
        taken = each["seconds"]
        ours, most = (
            [f"{taken[theirs] / taken[arm]:.3f}x" if theirs in taken else "-" for theirs in ("torch", "flash")]
            for arm in ("ours", "nothing")
        )
        lines.append(
            f"| {of['device']}, {of['dtype']} | {each['batch']} | {each['until'] - each['steps']:,} to"
            f" {each['until']:,} | {ours[0]} | {ours[1]} | {', '.join(most)} | {100 * each['served']:.0f} % |"
        )
    made = " and ".join(f"`{each['command']}` (torch {each['torch']})" for each in found)
    return "\n".join([*lines, "", f"Made by {made}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--until", type=int, default=2048, help="keys of the cache after the last step")
    parser.add_argument("--steps", type=int, default=256, help="tokens that the decoder generates")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    ours = autotuner.load(said.export)
    device = ours.table.device
    arms: dict[str, Call] = {
        "torch": torch.nn.functional.scaled_dot_product_attention,
        "ours": ours,
        "nothing": nothing,
        **({"flash": flash} if device == "cuda" else {}),
    }
    document: dict[str, Any] = {
        **provenance([said.export]),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": DEVICES[device].choose(Wishes()).device.name,
        "dtype": said.dtype,
        "layers": said.layers,
        "heads": said.heads,
        "ranges": [f"{each.low} to {each.high}" for each in ours.table.ranges],
        "loops": [],
    }
    with torch.no_grad():
        decoder = Decoder(said.layers, device, getattr(torch, said.dtype), said.heads)
        for batch in said.batch:
            ours.reset_counters()
            found = generated(decoder, arms, batch, said.until, said.steps)
            document["loops"].append({**found, "served": ours.served, "counters": dict(ours.counters)})
            if said.out is not None:
                said.out.write_text(json.dumps(document, indent=1) + "\n")
            print(table({**document, "loops": document["loops"][-1:]}), flush=True)


if __name__ == "__main__":
    main()
