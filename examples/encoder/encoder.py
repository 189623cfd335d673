"""A transformers encoder with random weights: what it calls is recorded, and served by what was tuned for it.

    python -m examples.encoder.encoder record
    autotuner tune sdpa_cpu --problems problems.toml --trials 40
    autotuner validate
    autotuner export --out best.json
    python -m examples.encoder.encoder compare best.json

`compare` writes what it found as JSON with --out. Weights and inputs are drawn here; nothing is downloaded. It needs
transformers: pip install 'kernel-autotuner[transformers]'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertModel

import autotuner
from examples.in_a_model import (
    NAME,
    commands,
    gains,
    graphs,
    interleaved,
    medians,
    mode,
    not_captured,
    placed,
    recorded,
    switch,
    use,
    worst,
    write,
)

LENGTHS = (128, 384)
"""Tokens of the full batches. Those of the padded batch have half of the longest and the longest."""
Batch = dict[str, Tensor]


def encoder(layers: int = 12, heads: int = 12) -> Any:
    """BERT-sized by default: 12 layers, 12 heads of 64."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64 * heads, num_attention_heads=heads, num_hidden_layers=layers, intermediate_size=256 * heads
    )
    return BertModel(config).eval()


def batches(lengths: tuple[int, ...] = LENGTHS) -> list[Batch]:
    """Full batches, and a padded one."""
    draw = torch.Generator().manual_seed(1)
    found = [{"input_ids": torch.randint(1, 30000, (2, length), generator=draw)} for length in lengths]
    longest = lengths[-1]
    mask = torch.ones(2, longest, dtype=torch.long)
    mask[0, longest // 2 :] = 0
    return [*found, {"input_ids": found[-1]["input_ids"], "attention_mask": mask}]


def key_lengths(attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
    """Of a batch that is padded on the right."""
    return None if attention_mask is None else attention_mask.sum(-1, dtype=torch.int32)


def forward(model: Any, batch: Batch) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(**batch).last_hidden_state
    return found


def kept(found: Tensor, batch: Batch) -> Tensor:
    """The rows of tokens; those of padding mean nothing, and differ."""
    return found[batch["attention_mask"].bool()] if "attention_mask" in batch else found


def compare(model: Any, ours: Any, inputs: list[Batch], rounds: int) -> dict[str, Any]:
    """Outputs and times of the model with torch's attention and with ours, turn by turn, eager and compiled."""
    return {
        "tokens": [int(batch["input_ids"].numel()) for batch in inputs],
        "padded": ["attention_mask" in batch for batch in inputs],
        "eager": _compared(model, ours, inputs, rounds, lambda: forward),
        "compiled": _compared(model, ours, inputs, rounds, lambda: compiled(mode(model))),
    }


def compiled(how: str | None) -> Callable[[Any, Batch], Tensor]:
    """The forward under torch.compile: no graph breaks, and no length is compiled in."""
    torch.compiler.reset()
    return torch.compile(forward, fullgraph=True, dynamic=True, mode=how)


def _compared(
    model: Any, ours: Any, inputs: list[Batch], rounds: int, made: Callable[[], Callable[[Any, Batch], Tensor]]
) -> dict[str, Any]:
    runs: dict[str, Callable[[Any, Batch], Tensor]] = {"sdpa": made(), NAME: made()}
    outputs: dict[str, list[Tensor]] = {}
    counts: list[int] = []

    def turn(name: str) -> None:
        switch(model, name, ours, key_lengths)

    for name, run in runs.items():
        turn(name)
        ours.reset_counters()
        outputs[name] = []
        for batch in inputs:
            outputs[name].append(kept(run(model, batch), batch).clone())  # a CUDA graph writes it again
            counts.append(graphs())
    served, counters = ours.served, dict(ours.counters)

    arms = {name: [partial(run, model, batch) for batch in inputs] for name, run in runs.items()}
    taken = interleaved(arms, rounds, turn)
    return {
        "served": served,
        "counters": counters,
        "graphs_after_each_batch": counts[len(inputs) :],
        "not_captured": not_captured(),
        "largest_difference": worst(outputs[NAME], outputs["sdpa"]),
        "seconds_sdpa": medians(taken["sdpa"]),
        "seconds_ours": medians(taken[NAME]),
        **gains(taken["sdpa"], taken[NAME]),
    }


def main() -> None:
    parser, each_command = commands(__doc__)
    for each in each_command:
        each.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    said = parser.parse_args()
    model = placed(encoder(said.layers, said.heads), said)
    drawn = batches(tuple(said.lengths))
    inputs = [{name: each.to(said.device) for name, each in batch.items()} for batch in drawn]
    if said.command == "record":
        use(model, autotuner.function("sdpa"), key_lengths)
        recorded(lambda: [forward(model, batch) for batch in inputs], said.out, "sdpa")
    else:
        write(compare(model, autotuner.load(said.export), inputs, said.rounds), said)


if __name__ == "__main__":
    main()
