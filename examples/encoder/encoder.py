"""A transformers encoder with random weights: what it calls is recorded, and served by what was tuned for it.

    python examples/encoder/encoder.py record
    autotuner tune sdpa_cpu --problems problems.toml --trials 40
    python examples/encoder/encoder.py compare best.json

`compare` writes what it found as JSON with --out. Weights and inputs are drawn here; nothing is downloaded. It needs
transformers: pip install 'autotuner[transformers]'.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, BertConfig, BertModel
from transformers.masking_utils import sdpa_mask

import autotuner

NAME = "autotuner"
LENGTHS = (128, 384)
"""Tokens of the full batches. Those of the padded batch have half of the longest and the longest."""


def encoder(layers: int = 12, heads: int = 12) -> Any:
    """BERT-sized by default: 12 layers, 12 heads of 64."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64 * heads, num_attention_heads=heads, num_hidden_layers=layers, intermediate_size=256 * heads
    )
    return BertModel(config).eval()


def batches(lengths: tuple[int, ...] = LENGTHS) -> list[dict[str, Tensor]]:
    """Full batches, and a padded one whose mask no variant takes."""
    draw = torch.Generator().manual_seed(1)
    found = [{"input_ids": torch.randint(1, 30000, (2, length), generator=draw)} for length in lengths]
    longest = lengths[-1]
    mask = torch.ones(2, longest, dtype=torch.long)
    mask[0, longest // 2 :] = 0
    return [*found, {"input_ids": found[-1]["input_ids"], "attention_mask": mask}]


def use(model: Any, function: Callable[..., Tensor]) -> None:
    """Lets the model call the function wherever it would call torch's. Both interfaces are needed: without the second
    one transformers makes no mask for an attention that it does not know."""

    def attention(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        found = function(query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling)
        return found.transpose(1, 2).contiguous(), None

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def forward(model: Any, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(**batch).last_hidden_state
    return found


def record(path: Path) -> None:
    model = encoder()
    with autotuner.record() as calls:
        for batch in batches():
            forward(model, batch)
    print(f"{len(calls)} calls; {calls.write(path)} has {len(calls.problems)} problems")


def seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def compare(model: Any, ours: Any, inputs: list[dict[str, Tensor]], rounds: int) -> dict[str, Any]:
    """Outputs and times of the model with torch's attention and with ours, turn by turn."""
    model.set_attn_implementation("sdpa")
    expected = [forward(model, batch) for batch in inputs]
    use(model, ours)
    found = [forward(model, batch) for batch in inputs]
    worst = max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True))
    served, counters = ours.served, dict(ours.counters)
    times: dict[str, list[list[float]]] = {"sdpa": [], NAME: []}
    for _ in range(rounds):
        for name, taken in times.items():
            model.set_attn_implementation(name)
            taken.append([seconds(lambda batch=batch: forward(model, batch)) for batch in inputs])  # type: ignore[misc]
    medians = {name: [statistics.median(each) for each in zip(*taken, strict=True)] for name, taken in times.items()}
    return {
        "tokens": [batch["input_ids"].numel() for batch in inputs],
        "padded": ["attention_mask" in batch for batch in inputs],
        "served": served,
        "counters": counters,
        "largest_difference": worst,
        "seconds_sdpa": medians["sdpa"],
        "seconds_ours": medians[NAME],
        "speedups": [before / after for before, after in zip(medians["sdpa"], medians[NAME], strict=True)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("--out", type=Path, default=Path("problems.toml"))
    comparing = commands.add_parser("compare")
    comparing.add_argument("export", type=Path)
    comparing.add_argument("--rounds", type=int, default=9)
    comparing.add_argument("--out", type=Path)
    said = parser.parse_args()
    if said.command == "record":
        record(said.out)
        return
    found = compare(encoder(), autotuner.load(said.export, build=True), batches(), said.rounds)
    about = {"command": " ".join(sys.argv), "torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({**about, "threads": torch.get_num_threads(), **found}, indent=1) + "\n"
    if said.out is not None:
        said.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
