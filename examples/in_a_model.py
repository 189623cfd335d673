"""What both examples do with a transformers model: its attention replaced, and its times before and after."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

import autotuner
from autotuner.devices import DEVICES, Wishes

NAME = "autotuner"
Masks = tuple[Tensor, Tensor]
"""Lengths of the keys, and the mask that says the same."""
ALWAYS = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
"""The mask is made even where torch could do without: lengths say nothing of that."""


def use(model: Any, function: Callable[..., Tensor], lengths_of: Callable[..., Tensor | None]) -> None:
    """Lets the model call the function wherever it would call torch's, with the lengths of the keys, (batch,) of int32.
    Both interfaces are needed: transformers makes no mask for an attention that it does not know. The mask that says
    the same is made too, once for all layers: torch takes it for the calls that it serves.
    """

    def masks(**said: Any) -> Masks | None:
        lengths = lengths_of(**said)
        return None if lengths is None else (lengths, sdpa_mask(**{**said, **ALWAYS}))

    def attention(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Masks | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        lengths, mask = attention_mask or (None, None)
        found = function(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=bool(module.is_causal),
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
            key_lengths=lengths,
            corner="bottom_right",
        )
        return found.transpose(1, 2).contiguous(), None

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, masks)
    model.set_attn_implementation(NAME)


def switch(model: Any, name: str, function: Callable[..., Tensor], lengths_of: Callable[..., Tensor | None]) -> None:
    """Lets the model call the function where the name is ours, else what transformers has of that name."""
    if name == NAME:
        use(model, function, lengths_of)
    else:
        model.set_attn_implementation(name)


def seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


Rounds = list[list[float]]
"""Of each run its seconds, a number a round."""


def interleaved(
    arms: Mapping[str, Sequence[Callable[[], object]]], rounds: int, turn: Callable[[str], None]
) -> dict[str, Rounds]:
    """By arm. In each round every arm has its turn, in random order; `turn` is told, outside the clock."""
    taken: dict[str, Rounds] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in random.sample(list(arms), len(arms)):
            turn(name)
            taken[name].append([seconds(run) for run in arms[name]])
    return {name: [list(each) for each in zip(*rows, strict=True)] for name, rows in taken.items()}


def medians(taken: Rounds) -> list[float]:
    """Seconds of each run."""
    return [statistics.median(each) for each in taken]


def gains(before: Rounds, after: Rounds) -> dict[str, list[Any]]:
    """Of each run the median over the rounds of how many times as fast it is after, and the quartiles."""
    ratios = [[one / other for one, other in zip(*both, strict=True)] for both in zip(before, after, strict=True)]
    cuts = [statistics.quantiles(each if len(each) > 1 else each * 2, n=4, method="inclusive") for each in ratios]
    return {"speedups": [middle for _, middle, _ in cuts], "quartiles": [[low, high] for low, _, high in cuts]}


def graphs() -> int:
    """Graphs that torch.compile has made so far in this process."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def mode(model: Any) -> str | None:
    """Of torch.compile: on a GPU what it compiles is captured as CUDA graphs."""
    return "reduce-overhead" if model.device.type == "cuda" else None


def not_captured() -> int:
    """How often torch.compile has left a graph without a CUDA graph of it so far, though it was asked for one."""
    return int(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])


def worst(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True))


def write(document: dict[str, Any], said: argparse.Namespace) -> None:
    """The document with what it was measured on."""
    path = said.out
    about = {
        "command": " ".join(sys.argv),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": DEVICES[said.device].choose(Wishes()).device.name,
        "kind": said.device,
        "dtype": said.dtype,
        "threads": torch.get_num_threads(),
    }
    text = json.dumps({**about, **document}, indent=1) + "\n"
    if path is not None:
        path.write_text(text)
    print(text, end="")


def commands(about: str | None) -> tuple[argparse.ArgumentParser, tuple[argparse.ArgumentParser, ...]]:
    """A command line with `record` and `compare`."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    found = parser.add_subparsers(dest="command", required=True)
    record, compare = found.add_parser("record"), found.add_parser("compare")
    record.add_argument("--out", type=Path, default=Path("problems.toml"))
    compare.add_argument("export", type=Path)
    compare.add_argument("--rounds", type=int, default=9)
    compare.add_argument("--out", type=Path)
    for each in (record, compare):
        each.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
        each.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
        each.add_argument("--layers", type=int, default=12)
        each.add_argument("--heads", type=int, default=12)
    return parser, (record, compare)


def placed(model: Any, said: argparse.Namespace) -> Any:
    """The model on the device and in the element type that were asked for."""
    return model.to(said.device, getattr(torch, said.dtype))


def recorded(run: Callable[[], object], path: Path, op: str) -> None:
    """Runs the model, which calls autotuner.function(op), and writes what it called of that op."""
    with autotuner.record() as calls:
        run()
    problems = [each for each in calls.problems if each.op == op]
    print(f"{len(calls)} calls; {calls.write(path, op)} has {len(problems)} problems")
