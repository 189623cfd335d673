"""Host time of attention inside an eager model, where caches are cold: what a layer takes beside transformers' own.

    python -m benchmarks.inference.host_in_a_model best.json [--heads 12] [--length 128]
        [--dtype float32] [--rounds 200] [--out FILE]

The model is the encoder of the examples with one batch of two texts, on the device that the export is for. Each arm is
its attention: transformers' call of torch's function, `autotuner.function`, what `load` gives. Arms take turns in
random order. A forward's time ends when it returns: on a GPU nothing waits for what was launched. On a CPU the times
contain what is computed, so let --heads and --length be small.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import autotuner
from benchmarks.attention.interleaved import spread
from benchmarks.provenance import provenance
from examples.encoder.encoder import encoder, key_lengths
from examples.in_a_model import NAME, switch

OWN = "transformers' own"
WARM_UPS = 3


def arms(given: argparse.Namespace) -> dict[str, Callable[..., Any]]:
    """The attention of each; transformers has its own."""
    return {
        OWN: torch.nn.functional.scaled_dot_product_attention,
        "autotuner.function": autotuner.function("sdpa"),
        "load": autotuner.load(given.export),
    }


def measured(model: Any, batch: torch.Tensor, timed: dict[str, Callable[..., Any]], rounds: int) -> Any:
    """Microseconds of the host for a forward, of each arm in every round."""
    wait: Callable[[], object] = torch.cuda.synchronize if batch.is_cuda else lambda: None
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name in random.sample(list(timed), len(timed)):
            switch(model, "sdpa" if name == OWN else NAME, timed[name], key_lengths)
            for _ in range(WARM_UPS):
                model(input_ids=batch)
            wait()
            started = time.perf_counter()
            model(input_ids=batch)
            taken[name].append(1e6 * (time.perf_counter() - started))
            wait()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    timed = arms(given)
    loaded: Any = timed["load"]
    device = loaded.table.device
    model = encoder(heads=given.heads).to(device, getattr(torch, given.dtype))
    layers = model.config.num_hidden_layers
    with torch.no_grad():
        batch = torch.randint(1, 30000, (2, given.length), device=device)
        taken = measured(model, batch, timed, given.rounds)
    document = {
        **provenance([given.export]),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "layers": layers,
        "counters": dict(loaded.counters),
        "forward_us": {name: spread(us) for name, us in taken.items()},
        "more_a_layer_us": {
            name: spread([(one - own) / layers for one, own in zip(us, taken[OWN], strict=True)])
            for name, us in taken.items()
            if name != OWN
        },
    }
    print(f"{OWN}: {median(taken[OWN]):.0f} us a forward; a layer more than that:")
    for name, us in document["more_a_layer_us"].items():
        print(f"{name}: {us['median']:+.1f} us ({us['low']:+.1f} to {us['high']:+.1f})")
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
