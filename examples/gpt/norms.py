"""The norms of the small GPT beside this file: recorded, tuned for, and served.

    python -m examples.gpt.norms record
    autotuner tune rmsnorm_cpu --problems problems.toml --trials 40
    autotuner export --out best.json
    python -m examples.gpt.norms compare best.json

The model computes its norms itself, in several operations. Here each calls torch's rms_norm instead, or what was tuned:
`autotuner.function("rms_norm")` while it is recorded, then what `autotuner.load` returns. Norms are shared by prefill,
with as many rows as a prompt has tokens, and generation, with one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

import autotuner
from examples.gpt.gpt import NEW, PROMPTS, ROOM, cache_of, compiled, generate, gpt, key_lengths, step, texts
from examples.in_a_model import commands, gains, interleaved, medians, mode, placed, recorded, switch, worst, write

OWN = "the model's own"


def use_norms(model: Any, function: Callable[..., Tensor] | None) -> None:
    """Lets every norm of the model call the function; None: the model computes them itself again."""
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            if function is None:
                vars(module).pop("forward", None)
            else:
                module.forward = partial(_norm, module, function)


def _norm(module: Any, function: Callable[..., Tensor], rows: Tensor) -> Tensor:
    return function(rows, (rows.shape[-1],), module.weight, module.variance_epsilon)


def compare(model: Any, ours: Any, inputs: list[Tensor], new: int, room: int, rounds: int) -> dict[str, Any]:
    """Outputs and times of the model with its own norms and with ours, turn by turn, eager and compiled."""
    switch(model, "sdpa", ours, key_lengths)
    return {
        "prompts": [int(tokens.shape[1]) - new for tokens in inputs],
        "new_tokens": new,
        "eager": _compared(model, ours, inputs, new, room, rounds, False),
        "compiled": _compared(model, ours, inputs, new, room, rounds, True),
    }


def _compared(
    model: Any, ours: Any, inputs: list[Tensor], new: int, room: int, rounds: int, compiles: bool
) -> dict[str, Any]:
    cache, norms = cache_of(model, room), {OWN: None, "ours": ours}
    steps = {name: compiled(mode(model)) if compiles else (step, step) for name in norms}
    outputs: dict[str, list[Tensor]] = {}

    def turn(name: str) -> None:
        use_norms(model, norms[name])

    for name, pair in steps.items():
        turn(name)
        ours.reset_counters()
        outputs[name] = [generate(model, tokens, new, cache, *pair) for tokens in inputs]
    served, counters = ours.served, dict(ours.counters)

    def one(name: str, tokens: Tensor) -> None:
        generate(model, tokens, new, cache, *steps[name])

    taken = interleaved({name: [partial(one, name, each) for each in inputs] for name in steps}, rounds, turn)
    return {
        "served": served,
        "counters": counters,
        "largest_difference": worst(outputs["ours"], outputs[OWN]),
        "seconds_own": medians(taken[OWN]),
        "seconds_ours": medians(taken["ours"]),
        **gains(taken[OWN], taken["ours"]),
    }


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
        use_norms(model, autotuner.function("rms_norm"))
        cache = cache_of(model, said.room)
        recorded(lambda: [generate(model, each, said.new, cache) for each in inputs], said.out, "rmsnorm")
    else:
        write(compare(model, autotuner.load(said.export), inputs, said.new, said.room, said.rounds), said)


if __name__ == "__main__":
    main()
