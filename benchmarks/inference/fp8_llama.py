"""How far a Llama's logits are from those of the dequantised cache where its attention reads a cache in FP8.

    python -m benchmarks.inference.fp8_llama tiny.json real.json [--json docs/results/fp8_llama.json] [--hold]

Each export serves the problem of one of WIDTHS. Weights are drawn. A cache of K and V in FP8, each head with a descale,
grows by one key a step. One arm reads it by what the export serves, with Q in 16 bits; another has the same cache
widened to bfloat16 and torch's attention, and chooses the tokens with which all go on. The third is torch's math
backend on that cache: what bfloat16 costs in any case. As in the gate's T3, twice its error and a floor may be lost.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

import autotuner
from autotuner.devices import DEVICES
from autotuner.devices.kind import Wishes
from autotuner.gate.tolerance import FACTOR, SLICE_FLOOR
from autotuner.ops.sdpa_fp8.quantising import of_heads, quantised, stored
from benchmarks import holds
from benchmarks.provenance import provenance


class Width(NamedTuple):
    """Sizes of a Llama."""

    hidden: int
    heads: int
    heads_kv: int
    head_dim: int
    inner: int
    layers: int
    words: int

    @property
    def problem(self) -> str:
        """Of a step."""
        sizes = f"1,{self.heads}:{self.heads_kv},1x{ROOM},{self.head_dim}"
        return f"({sizes}) float8_e4m3fn bfloat16 full lengths cache"


PROMPT, ROOM = 56, 256
"""Tokens before the first step; keys that there is room for."""
WIDTHS = {
    "tiny": Width(256, 4, 2, 64, 512, 2, 256),
    "real": Width(4096, 32, 8, 128, 14336, 8, 32000),  # Llama 3's 8B, but for layers and words, which are fewer
}
HEADROOM = 1.5
"""What later keys may be larger by than those of the prompt, whose descales they have."""
Attend = Callable[[int, Tensor, "Cache"], Tensor]


class Cache:
    """K and V of all layers in FP8."""

    def __init__(self, of: Width, device: str) -> None:
        shape = (of.layers, 1, of.heads_kv, ROOM, of.head_dim)
        self.stored = [torch.zeros(shape, device=device).to(torch.float8_e4m3fn) for _ in range(2)]
        self.descales = [[torch.ones(1, of.heads_kv, device=device) for _ in range(of.layers)] for _ in range(2)]
        self.length = 0

    def put(self, layer: int, *kv: Tensor) -> None:
        """Behind what is there."""
        for into, descales, new in zip(self.stored, self.descales, kv, strict=True):
            if self.length == 0:
                descales[layer] = HEADROOM * quantised(new, new.shape[1])[1]
            made = stored(new.float() / of_heads(descales[layer], new.shape[1])).view(torch.uint8)
            into[layer].view(torch.uint8)[:, :, self.length : self.length + new.shape[2]] = made

    def widened(self, layer: int, count: int) -> list[Tensor]:
        """So many keys and values in bfloat16."""
        pairs = zip(self.stored, self.descales, strict=True)
        return [
            (each[layer][:, :, :count].float() * of_heads(descales[layer], each.shape[2])).bfloat16()
            for each, descales in pairs
        ]


class Llama:
    """In bfloat16."""

    def __init__(self, of: Width, device: str) -> None:
        self.of, self.device = of, device
        generator = torch.Generator(device).manual_seed(0)

        def drawn(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, generator=generator, device=device) / math.sqrt(columns)).bfloat16()

        rows, rows_kv = of.heads * of.head_dim, of.heads_kv * of.head_dim
        self.words = of.hidden**0.5 * drawn(of.words, of.hidden)
        sizes = (rows, of.hidden), (rows_kv, of.hidden), (rows_kv, of.hidden), (of.hidden, rows)
        inner = (of.inner, of.hidden), (of.inner, of.hidden), (of.hidden, of.inner)
        self.layers = [[drawn(*each) for each in (*sizes, *inner)] for _ in range(of.layers)]
        self.head = drawn(of.words, of.hidden)

    def logits(self, tokens: Tensor, cache: Cache, attend: Attend) -> Tensor:
        """Of the last token; keys and values of all are in the cache afterwards."""
        of, x, rows = self.of, self.words[tokens], tokens.shape[1]
        place = torch.arange(cache.length, cache.length + rows, device=self.device)
        turn = place[:, None] * 500000.0 ** (-torch.arange(0, of.head_dim, 2, device=self.device) / of.head_dim)
        for layer, (wq, wk, wv, wo, gate, up, down) in enumerate(self.layers):
            norm = rms_norm(x, (of.hidden,))
            q, k, v = (linear(norm, w).view(1, rows, -1, of.head_dim).transpose(1, 2) for w in (wq, wk, wv))
            q = turned(q, turn).contiguous()
            cache.put(layer, turned(k, turn), v)
            found = attend(layer, q, cache) if rows == 1 else prompt(layer, q, cache)
            x = x + linear(found.transpose(1, 2).reshape(1, rows, -1), wo)
            norm = rms_norm(x, (of.hidden,))
            x = x + linear(silu(linear(norm, gate)) * linear(norm, up), down)
        cache.length += rows
        return linear(rms_norm(x[:, -1], (of.hidden,)), self.head).float()[0]


def turned(x: Tensor, turn: Tensor) -> Tensor:
    """With rotary places."""
    one, other = x.float().chunk(2, -1)
    cos, sin = turn.cos(), turn.sin()
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1).bfloat16()


def prompt(layer: int, q: Tensor, cache: Cache) -> Tensor:
    """All of it at once, which no arm serves."""
    k, v = cache.widened(layer, q.shape[2])
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def widened(layer: int, q: Tensor, cache: Cache, backend: SDPBackend | None = None) -> Tensor:
    """torch's attention to the cache in bfloat16."""
    k, v = cache.widened(layer, cache.length + 1)
    if backend is None:
        return scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, enable_gqa=True)


def by(function: Callable[..., Tensor]) -> Attend:
    """What reads the cache itself, all the room that there is, by its length."""

    def attend(layer: int, q: Tensor, cache: Cache) -> Tensor:
        of_k, of_v = (each[layer] for each in cache.descales)
        lengths = torch.full((1,), cache.length + 1, dtype=torch.int32, device=q.device)
        descales = {"q_descale": torch.ones_like(of_k), "k_descale": of_k, "v_descale": of_v}
        return function(q, *(each[layer] for each in cache.stored), **descales, key_lengths=lengths)

    return attend


def compared(name: str, served: Any, steps: int) -> dict[str, Any]:
    """The relative root mean square of each step's logits, the largest and the last one's, and the first token that
    would have been another one."""
    of, device = WIDTHS[name], "cuda" if served.table.device == "cuda" else "cpu"
    arms: dict[str, Attend] = {
        "widened": widened,
        "ours": by(served),
        "math": partial(widened, backend=SDPBackend.MATH),
    }
    model, caches = Llama(of, device), {arm: Cache(of, device) for arm in arms}
    tokens = torch.randint(of.words, (1, PROMPT), generator=torch.Generator().manual_seed(1)).to(device)
    others = [arm for arm in arms if arm != "widened"]
    off: dict[str, list[float]] = {arm: [] for arm in others}
    differs: dict[str, int | None] = dict.fromkeys(others)
    for step in range(steps + 1):
        found = {arm: model.logits(tokens, caches[arm], attend) for arm, attend in arms.items()}
        wanted = found["widened"]
        for arm in others:
            off[arm].append(float((found[arm] - wanted).norm() / wanted.norm()))
            if differs[arm] is None and found[arm].argmax() != wanted.argmax():
                differs[arm] = step
        tokens = wanted.argmax().view(1, 1)
    return {
        "width": name,
        **of._asdict(),
        "steps": steps,
        "device": DEVICES[device].choose(Wishes()).device.name,
        "largest": {arm: max(each) for arm, each in off.items()},
        "last": {arm: each[-1] for arm, each in off.items()},
        "first_token_that_differs": differs,
        "served": served.served,
        "calls": sum(served.counters.values()),
    }


def most(row: dict[str, Any]) -> float:
    """How far the logits may be off."""
    return FACTOR["bfloat16"] * float(row["largest"]["math"]) + SLICE_FLOOR["bfloat16"]


def table(document: dict[str, Any] | None) -> str:
    """A row a width."""
    if document is None:
        return "Not kept yet."
    lines = [
        "| layers x hidden | steps | logits off by | torch's math | may be | first tokens that differ |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in document["rows"]:
        off, differs = row["largest"], row["first_token_that_differs"]
        token = ", ".join("none" if differs[arm] is None else str(differs[arm]) for arm in ("ours", "math"))
        size = f"{row['layers']} x {row['hidden']}"
        lines.append(f"| {size} | {row['steps']} | {off['ours']:.4f} | {off['math']:.4f} | {most(row):.4f} | {token} |")
    said = f"Made by `{document['command']}` ({document['rows'][0]['device']}, torch {document['torch']})."
    return "\n".join([*lines, "", said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exports", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    said = parser.parse_args()
    document: dict[str, Any] = {**provenance(said.exports), "torch": torch.__version__, "rows": []}
    with torch.no_grad():
        for export in said.exports:
            served = autotuner.load(export)
            problems = {str(each.problem) for each in served.table.entries}
            document["rows"] += [
                compared(name, served, said.steps) for name, of in WIDTHS.items() if of.problem in problems
            ]
    holds.measured((row["width"] for row in document["rows"]), "width")
    if said.json:
        said.json.write_text(json.dumps(document, indent=1) + "\n")
    print(table(document))
    far = [
        f"{row['width']}: logits are off by {row['largest']['ours']:.4f}"
        for row in document["rows"]
        if not row["largest"]["ours"] <= most(row)
    ]
    unserved = [
        f"{row['width']}: {row['served']:.0%} of the calls were served" for row in document["rows"] if row["served"] < 1
    ]
    if said.hold:
        holds.require([*far, *unserved])


if __name__ == "__main__":
    main()
