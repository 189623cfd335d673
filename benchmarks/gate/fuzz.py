"""Random points of a CUDA space on random small problems in the emulator, for as long as it may take.

    python -m benchmarks.gate.fuzz SPACE --seconds 300 --seed 1 [--views]

With --views tensors lie anywhere, heads are in groups, and there are log-sum-exps: for a space whose implementations
take them.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from functools import cache

from autotuner.gate.cases import Case
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from tests.emulator.emulator import EmulationError, in_words, judged

ROWS = (1, 63, 64, 65, 130, 200, 257, 300)
KEYS = (1, 15, 64, 65, 127, 129, 200, 300, 450)
DISTRIBUTIONS = ("randn", "randn", "large", "huge", "slopes", "sink")
SCHEDULES = 3
LAYOUTS = ("bhsd", "bshd", "packed qkv")
GROUPS = ((1, 1), (2, 1), (4, 2), (6, 3), (8, 1))
"""Heads of Q, and of K and V."""


@cache
def workbench(name: str, head_dim: int, causal: bool, layout: str, group: int, lse: bool) -> Workbench:
    """The space on a long problem, where most points are valid."""
    fields = {"batch": 1, "heads": 2 * group, "heads_kv": 2, "seq_q": 2048, "seq_k": 2048, "head_dim": head_dim}
    long = {**fields, "dtype": "float16", "causal": causal, "layout": layout, "lse": lse}
    return Workbench(load_space(name).model_copy(update={"problems": (SdpaProblem.model_validate(long),)}), "sm_90")


def one(name: str, draw: random.Random, views: bool) -> str | None:
    """What is wrong with a random point on a random problem; None when nothing is."""
    head_dim, causal = draw.choice((64, 128)), draw.random() < 0.5
    heads = draw.choice((1, 3))
    heads, heads_kv = draw.choice(GROUPS) if views else (heads, heads)
    layout, lse = draw.choice(LAYOUTS) if views else "bhsd", views and draw.random() < 0.5
    here = workbench(name, head_dim, causal, layout, heads // heads_kv, lse)
    variant = here.variant(draw.randrange(len(here.space)))
    sizes = {"batch": draw.choice((1, 2)), "heads": heads, "heads_kv": heads_kv, "seq_q": draw.choice(ROWS)}
    fields = {**sizes, "seq_k": draw.choice(KEYS), "head_dim": head_dim, "causal": causal, "layout": layout, "lse": lse}
    on = SdpaProblem.model_validate({**fields, "dtype": draw.choice(("float16", "bfloat16"))})
    distributions = (*DISTRIBUTIONS, "gaps", "expanded") if layout != "bhsd" else DISTRIBUTIONS
    case = Case(name=str(on), problem=on, distribution=draw.choice(distributions))
    source = here.family.folder / here.family.implementation("cuda", variant.impl).source
    try:
        errors = judged(source, variant.parameters, case, SCHEDULES)
        said = in_words(errors) if errors.failed_rule is not None else None
    except EmulationError as error:
        said = str(error)
    return said and f"{variant.parameters} on {on} {case.distribution}: {said}"


def main() -> int:
    """0 when nothing was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("space")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--views", action="store_true")
    given = parser.parse_args()
    draw, until, count, wrong = random.Random(given.seed), time.monotonic() + given.seconds, 0, 0
    while time.monotonic() < until:
        said, count = one(given.space, draw, given.views), count + 1
        if said is not None:
            wrong += 1
            sys.stdout.write(f"{said}\n")
    sys.stdout.write(f"{count} points, {wrong} wrong\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
