"""The part of docs/method/kernels-cuda.md on implementations beside each other, and what all pages of figures share."""

from __future__ import annotations

from typing import Any

from autotuner.values.ratio import speedup_of

MISSION = "(1,8,512,64) float16 full"
GOALS = (
    ("mma", "the best SDPA backend", 1.4),
    ("wmma", "flash", 0.8),
    ("cublas", "math", 1.0),
)
"""The least speedup at the mission shape, warm, that this project holds itself to: implementation, opponent, ratio."""


QUARTILES = "Speedups are medians of the rounds' ratios, in brackets their quartiles."
"""Below tables of speedups whose brackets are no 95 % interval."""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def provenance(document: dict[str, Any]) -> str:
    """Where the figures come from, in a sentence."""
    environment = document["environment"]
    where = f"{document['device']}, CUDA driver {environment['driver']}, torch {environment['torch']}"
    first, *others = document["commands"]
    more = " and its like" if others else ""
    return f"Made by `{first}`{more} on {document['when'][:10]}: {where}, {document['compiler']}."


def backends(races: dict[str, Any], cache: str) -> dict[str, float]:
    """Microseconds of each SDPA backend beside mma, in the process of the races."""
    return {name: race["sdpa_us"] for name, race in races["mma"][cache].items()}


def speedup(races: dict[str, Any], impl: str, cache: str, backend: str) -> float:
    """t_SDPA / t_variant, the median of interleaved blocks."""
    return speedup_of(races[impl][cache][backend]["ln_ratio"][1])


def against_best(races: dict[str, Any], impl: str, cache: str) -> tuple[str, float]:
    """The fastest SDPA backend, and the speedup over it."""
    times = backends(races, cache)
    best = min(times, key=lambda name: times[name])
    return best, speedup(races, impl, cache, best)


def goals(document: dict[str, Any]) -> str:
    """What implementations reach at the mission shape, and what is required of them."""
    races = document["shapes"][MISSION]["races"]
    rows = []
    for impl, opponent, least in GOALS:
        best, _ = against_best(races, impl, "warm")
        name = best if opponent.startswith("the best") else opponent
        warm, cold = (speedup(races, impl, cache, name) for cache in ("warm", "cold"))
        reached = f"{warm:.2f}x" if warm >= least else f"**{warm:.2f}x**"
        rows.append([f"`{impl}`", name, f"{least:.1f}x", reached, f"{cold:.2f}x"])
    head = ["IMPL", "against", "required, warm", "warm", "cold"]
    return f"{table(head, rows)}\n\nAt {MISSION}. {provenance(document)}"
