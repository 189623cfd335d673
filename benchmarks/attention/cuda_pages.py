"""The pages that show the figures of benchmarks/attention/cuda.py; benchmarks/pages.py writes them."""

from __future__ import annotations

from typing import Any

from autotuner.values.ratio import speedup_of

IMPLS = ("scalar", "cublas", "wmma", "mma")
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
    commands = "; ".join(f"`{command}`" for command in document["commands"])
    where = f"{document['device']}, CUDA driver {environment['driver']}, torch {environment['torch']}"
    return f"Made by {commands} on {document['when'][:10]}: {where}, {document['compiler']}."


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


def own_us(races: dict[str, Any], impl: str, cache: str) -> float:
    """Microseconds of an implementation's best, beside the fastest SDPA backend."""
    best, _ = against_best(races, impl, cache)
    return float(races[impl][cache][best]["variant_us"])


def summary(document: dict[str, Any]) -> str:
    """mma against the fastest SDPA backend of the same process."""
    rows = []
    for problem, figures in document["shapes"].items():
        races = figures["races"]
        line = [problem.replace(" float16", "")]
        for cache in ("warm", "cold"):
            best, ratio = against_best(races, "mma", cache)
            line += [f"{backends(races, cache)[best]:.2f} ({best})", f"{own_us(races, 'mma', cache):.2f}"]
            line.append(f"**{ratio:.2f}x**" if ratio > 1 else f"{ratio:.2f}x")
        rows.append(line)
    head = ["problem, float16", "best SDPA, warm us", "mma us", "speedup", "best SDPA, cold us", "mma us", "speedup"]
    return table(head, rows)


def goals(document: dict[str, Any]) -> str:
    """What was required at the mission shape, and what was reached."""
    races = document["shapes"][MISSION]["races"]
    rows = []
    for impl, opponent, least in GOALS:
        for cache in ("warm", "cold"):
            best, ratio = against_best(races, impl, cache)
            name = best if opponent.startswith("the best") else opponent
            ratio = ratio if name == best else speedup(races, impl, cache, name)
            race = races[impl][cache][name]
            required = f"at least {least:.1f}x" if cache == "warm" else "reported"
            met = ("yes" if ratio >= least else "**no**") if cache == "warm" else ""
            times = f"{race['variant_us']:.2f} against {race['sdpa_us']:.2f}"
            rows.append([impl, f"{opponent} ({name})", cache, required, f"{ratio:.2f}x", times, met])
    return table(["IMPL", "against", "cache", "required", "reached", "us", "met"], rows)


def page(document: dict[str, Any]) -> str:
    """docs/results/cuda_attention.md."""
    parts = [
        "# CUDA attention against PyTorch's SDPA",
        "Drawn by `benchmarks/pages.py` from cuda_attention.json; do not edit.",
        provenance(document),
        "Every ratio is the median over interleaved blocks of t_SDPA / t_variant, graph replays on one stream, in a "
        "fresh process after the sweep that found the variant; above 1 the variant is faster. Warm: one input set. "
        "Cold: so many input sets in turn that each has left the second-level cache. Inputs are random. Each of the "
        "implementations' best variants comes from the sweeps of the cold cache at that problem.",
        f"## mma against the fastest SDPA backend\n\n{summary(document)}",
        f"## Required at {MISSION}\n\n{goals(document)}",
        "The JSON has every implementation against every backend, the sweeps, and what the parameters matter.",
    ]
    return "\n\n".join(parts) + "\n"
