"""A small GPT with random weights, prefill and generation with a static cache: recorded, tuned for, and served.

    python -m examples.gpt.gpt record
    autotuner tune sdpa_cpu --problems problems.toml --trials 40
    autotuner export PREFILL --with GENERATION --out best.json
    python -m examples.gpt.gpt compare best.json

A static cache has room for more keys than there are. Each call says how many there are, and that the last row of the
causal mask sees all of them; so no length is compiled in. Prefill and generation are a study each, by where their
tensors lie: `autotuner status` names them.
`compare` writes what it found as JSON with --out. Nothing is downloaded. It needs transformers:
pip install 'kernel-autotuner[transformers]'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

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

PROMPTS = (96, 200, 333)
"""Tokens of the prompts. What comes after them is given, so that both sides compute the same."""
NEW, ROOM = 32, 512
"""Tokens that follow a prompt, and tokens that the cache has room for."""
Step = Callable[[Any, Tensor, Any], Tensor]


def gpt(layers: int = 12, heads: int = 12) -> Any:
    """As GPT-2's smallest by default, with 3 heads of Q for each of K and V."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=64 * heads,
        intermediate_size=256 * heads,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 3),
        max_position_embeddings=2048,
    )
    return LlamaForCausalLM(config).eval()


def texts(prompts: tuple[int, ...] = PROMPTS, new: int = NEW) -> list[Tensor]:
    """Tokens of prompts, each with those that follow."""
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(0, 8192, (1, length + new), generator=draw) for length in prompts]


def key_lengths(batch_size: int, q_length: int, q_offset: int | Tensor = 0, device: Any = "cpu", **_: Any) -> Tensor:
    """What the cache holds once the tokens of this call are in it."""
    return torch.zeros(batch_size, dtype=torch.int32, device=device) + q_offset + q_length


def step(model: Any, tokens: Tensor, cache: Any) -> Tensor:
    """The logits of the last token; prefill has many tokens, generation one."""
    with torch.no_grad():
        found: Tensor = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    return found


def cache_of(model: Any, room: int) -> Any:
    """An empty static cache for one text. It is used again for the next: a compiled graph is made for one cache."""
    config = model.config
    found = StaticCache(config=config, max_cache_len=room)
    heads, head_dim = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    found.early_initialization(1, heads, head_dim, model.dtype, model.device)
    return found


def generate(model: Any, tokens: Tensor, new: int, cache: Any, prefill: Step = step, decode: Step = step) -> Tensor:
    """Logits after the prompt and after each following token but the last."""
    cache.reset()
    prompt = tokens.shape[1] - new
    found = [prefill(model, tokens[:, :prompt], cache).clone()]  # a CUDA graph writes its result again
    for at in range(prompt, prompt + new - 1):
        token = tokens[:, at : at + 1].clone(memory_format=torch.contiguous_format)  # with no strides of the text's
        found.append(decode(model, token, cache).clone())
    return torch.cat(found, 1)


def compiled(how: str | None) -> tuple[Step, Step]:
    """Prefill and one token under torch.compile: no graph breaks; prompts of any length are one graph."""
    torch.compiler.reset()
    prefill = torch.compile(step, fullgraph=True, dynamic=True, mode=how)
    return prefill, torch.compile(_one_token, fullgraph=True, dynamic=False, mode=how)


def _one_token(model: Any, tokens: Tensor, cache: Any) -> Tensor:
    """As `step`, with graphs of its own."""
    return step(model, tokens, cache)


def compare(model: Any, ours: Any, inputs: list[Tensor], new: int, room: int, rounds: int) -> dict[str, Any]:
    """Outputs and times of the model with torch's attention and with ours, turn by turn, eager and compiled."""
    arguments = (model, ours, inputs, new, room, rounds)
    return {
        "prompts": [int(tokens.shape[1]) - new for tokens in inputs],
        "new_tokens": new,
        "cache": room,
        "eager": _compared(*arguments, lambda: (step, step)),
        "compiled": _compared(*arguments, lambda: compiled(mode(model))),
    }


def _compared(
    model: Any,
    ours: Any,
    inputs: list[Tensor],
    new: int,
    room: int,
    rounds: int,
    made: Callable[[], tuple[Step, Step]],
) -> dict[str, Any]:
    steps, cache = {"sdpa": made(), NAME: made()}, cache_of(model, room)
    outputs: dict[str, list[Tensor]] = {}
    counts: list[int] = []

    def turn(name: str) -> None:
        switch(model, name, ours, key_lengths)

    for name, pair in steps.items():
        turn(name)
        ours.reset_counters()
        outputs[name] = []
        for tokens in inputs:
            outputs[name].append(generate(model, tokens, new, cache, *pair))
            counts.append(graphs())
    served, counters = ours.served, dict(ours.counters)

    def one(name: str, tokens: Tensor, following: int) -> None:
        generate(model, tokens, following, cache, *steps[name])

    prefill = [tokens[:, : tokens.shape[1] - new + 1] for tokens in inputs]
    whole = interleaved({name: [partial(one, name, each, new) for each in inputs] for name in steps}, rounds, turn)
    first = interleaved({name: [partial(one, name, each, 1) for each in prefill] for name in steps}, rounds, turn)
    rates = {name: _tokens_per_second(medians(whole[name]), medians(first[name]), new) for name in steps}
    return {
        "served": served,
        "counters": counters,
        "graphs_after_each_prompt": counts[len(inputs) :],
        "not_captured": not_captured(),
        "largest_difference": worst(outputs[NAME], outputs["sdpa"]),
        "prefill_seconds_sdpa": medians(first["sdpa"]),
        "prefill_seconds_ours": medians(first[NAME]),
        "tokens_per_second_sdpa": rates["sdpa"],
        "tokens_per_second_ours": rates[NAME],
        **gains(whole["sdpa"], whole[NAME]),
    }


def _tokens_per_second(whole: list[float], first: list[float], new: int) -> list[float]:
    """Of generation alone."""
    return [(new - 1) / max(both - prefill, 1e-9) for both, prefill in zip(whole, first, strict=True)]


def main() -> None:
    parser, each_command = commands(__doc__)
    for each in each_command:
        each.add_argument("--prompts", type=int, nargs="+", default=PROMPTS)
        each.add_argument("--new", type=int, default=NEW)
        each.add_argument("--room", type=int, default=ROOM)
    said = parser.parse_args()
    model = placed(gpt(said.layers, said.heads), said)
    inputs = [each.to(said.device) for each in texts(tuple(said.prompts), said.new)]
    if said.command == "record":
        use(model, autotuner.function("sdpa"), key_lengths)
        cache = cache_of(model, said.room)
        recorded(lambda: [generate(model, each, said.new, cache) for each in inputs], said.out, "sdpa")
    else:
        ours = autotuner.load(said.export)
        write(compare(model, ours, inputs, said.new, said.room, said.rounds), said)


if __name__ == "__main__":
    main()
