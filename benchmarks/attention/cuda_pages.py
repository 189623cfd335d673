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


README_SHOWS = (
    "(1,8,512,64) float16 full",
    "(1,8,512,64) float16 causal",
    "(2,8,2048,64) float16 full",
    "(1,32,2048,128) float16 full",
    "(1,32,2048,128) float16 causal",
)
"""The mission shape, and large ones, where the variants lose."""


def brief(document: dict[str, Any]) -> str:
    """The result table of README.md."""
    return summary({**document, "shapes": {name: document["shapes"][name] for name in README_SHOWS}})


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


def every_race(document: dict[str, Any], cache: str) -> str:
    """Each implementation's best at each problem against each backend: the ratios."""
    names = list(dict.fromkeys(name for f in document["shapes"].values() for name in f["races"]["mma"][cache]))
    rows = []
    for problem, figures in document["shapes"].items():
        races = figures["races"]
        times = backends(races, cache)
        rows.append([problem, "SDPA, us", "", *(f"{times[name]:.2f}" if name in times else "-" for name in names)])
        for impl in IMPLS:
            ratios = [f"{speedup(races, impl, cache, name):.2f}x" if name in times else "-" for name in names]
            rows.append(["", impl, f"{own_us(races, impl, cache):.2f}", *ratios])
    return table(["problem", "IMPL", "us", *names], rows)


def sensitivity(document: dict[str, Any]) -> str:
    """How much the parameters matter: the spread of right variants at the mission shape."""
    rows = [
        [
            impl,
            str(found["right"]),
            f"{found['best_us']:.2f}",
            f"{found['worst_us']:.2f}",
            f"{found['worst_us'] / found['best_us']:.1f}x",
            " ".join(f"{name}={value}" for name, value in found["best"].items() if name != "IMPL"),
        ]
        for impl, found in document["mission"]["sensitivity"].items()
    ]
    return table(["IMPL", "right variants", "best us", "worst us", "spread", "the best"], rows)


def sweeps(document: dict[str, Any]) -> str:
    """Each sweep: how many were judged, how long it took, what became of them."""
    rows = [
        [
            each["problem"],
            f"{each['valid_points']:,}",
            str(each["judged"]),
            f"{each['seconds']:.0f}",
            ", ".join(f"{count} {verdict}" for verdict, count in each["verdicts"].items()),
            ", ".join(f"{count} {code}" for code, count in each["rejected"].items()) or "none",
        ]
        for each in document["mission"]["sweeps"]
    ]
    return table(["problem", "valid points", "judged", "seconds", "verdicts", "rejected by"], rows)


def planted(document: dict[str, Any]) -> str:
    """What became of the variants with planted defects."""
    modes = document["planted"]["modes"]
    rows = [[mode, str(len(found)), ", ".join(sorted(set(found)))] for mode, found in sorted(modes.items())]
    return table(["defect", "variants", "verdict and code"], rows)


def smoke(transcript: str, width: int = 150) -> str:
    """The first and the last lines of the smoke sweep."""
    lines = [line.rstrip() for line in transcript.splitlines() if line.strip()]
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("rank"))
    shown = [*lines[:7], "...", *lines[start : start + 4], "...", *lines[-1:]]
    return "\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in shown)


def page(document: dict[str, Any], transcript: str) -> str:
    """docs/results/cuda_attention.md."""
    parts = [
        "# CUDA attention against PyTorch's SDPA",
        "Drawn by `benchmarks/pages.py` from cuda_attention.json and cuda_smoke.txt; do not edit.",
        provenance(document),
        "Every ratio is the median over interleaved blocks of t_SDPA / t_variant, graph replays on one stream, in a "
        "fresh process after the sweep that found the variant; above 1 the variant is faster. Warm: one input set. "
        "Cold: so many input sets in turn that each has left the second-level cache. Inputs are random. Each of the "
        "implementations' best variants comes from the sweeps of the cold cache at that problem.",
        f"## mma against the fastest SDPA backend\n\n{summary(document)}",
        f"## Required at {MISSION}\n\n{goals(document)}",
        "## How much the parameters matter\n\nRight variants of the sweeps at the same shape, cold.\n\n"
        f"{sensitivity(document)}",
        f"## The sweeps at {MISSION}\n\nThe first over all four implementations, the others over one each.\n\n"
        f"{sweeps(document)}",
        f"## Against every backend, warm\n\n{every_race(document, 'warm')}",
        f"## Against every backend, cold\n\n{every_race(document, 'cold')}",
        "## Planted defects\n\nA sweep among right variants and variants that hang, fault, race, ask for more shared "
        f"memory than there is, or write where they must not; it ended by itself.\n\n{planted(document)}",
        f"## The smoke space\n\n```\n{smoke(transcript)}\n```",
    ]
    return "\n\n".join(parts) + "\n"
