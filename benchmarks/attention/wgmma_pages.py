"""The page that shows the figures of wgmma.py and wgmma_trials.py beside it; benchmarks/pages.py writes it."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from benchmarks.attention.cuda_pages import provenance, table

SOFTMAXES = ("spec", "spec_rounded", "exact")


def page(document: dict[str, Any], stressed: dict[str, Any] | None = None) -> str:
    """docs/results/wgmma_attention.md. `stressed`: a later stress, of every problem."""
    parts = [
        "# IMPL = wgmma against PyTorch's SDPA",
        "Drawn by `benchmarks/pages.py` from wgmma_attention.json; do not edit. The kernel has"
        " changed since, in four\nplaces, and `early_144` with a causal mask is"
        " refused now ([kernels-cuda.md](../method/kernels-cuda.md)).",
        provenance(document),
        "Times are medians with their quartiles, in microseconds; a speedup is the median over interleaved blocks of"
        " t_SDPA / t_wgmma. Cold: the inputs have left the second-level cache; warm: one input set. A point is"
        " NAME/SOFTMAX: `CHANGES` in benchmarks/attention/wgmma.py says which parameters NAME sets,"
        " docs/method/kernels-cuda.md what these and the softmaxes are.",
        "## The fastest of each softmax",
        races(document["races"]),
        mean_speedups(document["races"]),
        "## The way back\n\nWarm; `large`, `slopes` and `sink` are the gate's inputs of that name.",
        way_back(named(document, "back")),
        *([] if stressed is None else ["## Stress", stress(stressed, document["judge"])]),
        "The JSON has every point that was judged, with what rejected it, and clocks and power.",
    ]
    return "\n\n".join(parts) + "\n"


def named(document: dict[str, Any], step: str) -> dict[str, Any]:
    """A step's figures by problem instead of by letter."""
    found: dict[str, Any] = {document["judge"][name]["problem"]: each for name, each in document[step].items()}
    return found


def span(row: dict[str, Any]) -> str:
    low, high = row["quartiles"]
    return f"{row['median']:.1f} ({low:.1f} to {high:.1f})"


def faster(row: dict[str, Any]) -> str:
    """The speedup of a race, or why there is none."""
    return f"{1 / row['ratio']['median']:.2f}x" if "us" in row else "failed"


def races(found: dict[str, Any]) -> str:
    head = ["problem", "point", "us, cold", "cuDNN us", "speedup", "warm", "over flash", "bfloat16"]
    rows = []
    for figures in found.values():
        for label, each in figures["races"].items():
            cold = each["float16 cudnn cold"]
            others = [faster(each[key]) for key in ("float16 cudnn warm", "float16 flash cold", "bfloat16 cudnn cold")]
            times = [span(cold["us"]), span(cold["baseline_us"]), f"**{faster(cold)}**"]
            rows.append([figures["problem"].replace(" float16", ""), label, *times, *others])
    return table(head, rows)


def mean_speedups(found: dict[str, Any]) -> str:
    """The geometric mean of the cold speedups over all problems, for each softmax."""
    logs: dict[str, list[float]] = {}
    for figures in found.values():
        for label, each in figures["races"].items():
            ratio = each["float16 cudnn cold"]["ratio"]["median"]
            logs.setdefault(label.rpartition("/")[2], []).append(-math.log(ratio))
    means = ", ".join(f"{math.exp(fmean(logs[how])):.2f}x with {how}" for how in SOFTMAXES)
    return f"Geometric mean of the cold speedups over the {len(found)} problems: {means}."


def way_back(found: dict[str, Any]) -> str:
    rows = []
    for name, figures in found.items():
        for label in next(iter(figures.values())):
            rows.append([name, label, *(f"{each[label]['median']:.1f}" for each in figures.values())])
    return table(["problem", "point", *next(iter(found.values()))], rows)


def stress(document: dict[str, Any], judged: dict[str, Any]) -> str:
    """Launches of random points; `judged` has the problems of the letters."""
    found = {judged[name]["problem"]: each for name, each in document["stress"].items()}
    made = f"{document['device']}, {document['when'][:10]}. Made by `{document['commands'][-1]}`."
    rows = [
        [name, str(row["points"]), f"{row['launches']:,}", str(row["differ"]), f"{row['from_flash']:.1e}"]
        for name, row in found.items()
    ]
    head = ["problem", "random points", "launches", "outputs that differ", "farthest from flash"]
    return f"{table(head, rows)}\n\n{made}"
