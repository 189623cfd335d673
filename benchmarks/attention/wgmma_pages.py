"""The page that shows the figures of wgmma.py and wgmma_trials.py beside it; benchmarks/pages.py writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from benchmarks.attention.cuda_pages import provenance, table

SOFTMAXES = ("spec", "spec_rounded", "exact")
SHOWN = "spec_rounded"
"""The softmax of the table of points."""


def page(document: dict[str, Any], stressed: dict[str, Any] | None = None) -> str:
    """docs/results/wgmma_attention.md. `stressed`: a later stress, of every problem."""
    parts = [
        "# IMPL = wgmma against PyTorch's SDPA",
        "Drawn by `benchmarks/pages.py` from wgmma_attention.json; do not edit. The kernel has"
        " changed since, in four\nplaces, and `early_144` with a causal mask is"
        " refused now ([kernels-cuda.md](../kernels-cuda.md)).",
        provenance(document),
        "Times are medians with their quartiles, in microseconds; a speedup is the median over interleaved blocks of"
        " t_SDPA / t_wgmma. Cold: the inputs have left the second-level cache; warm: one input set. A point is"
        " NAME/SOFTMAX: `CHANGES` in benchmarks/attention/wgmma.py says which parameters NAME sets,"
        " docs/kernels-cuda.md what these and the softmaxes are.",
        "## The fastest of each softmax",
        races(document["races"]),
        mean_speedups(document["races"]),
        "## Where nothing was raced again",
        "As the search would judge them, cold, beside cuDNN.",
        unraced(document),
        f"## What the other parameters did\n\nTime over the fastest of the problem, cold, with {SHOWN}.",
        points(document["judge"]),
        "## Rejected",
        rejected(document["judge"]),
        "## The way back\n\nWarm; `large`, `slopes` and `sink` are the gate's inputs of that name (docs/gate.md).",
        way_back(named(document, "back")),
        "## Clocks and power at (1,32,2048,128) float16 full",
        "Hot: replays of about 1.6 ms without a pause; cool: of 0.4 ms, 4 ms apart. NVML's reason 4 is the power cap."
        " The power is an average over longer than a burst.",
        clocks(document["clocks"]["A"]),
        "## Stress",
        stress(named(document, "stress")),
        *([] if stressed is None else later_stress(stressed, document["judge"])),
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


def timed(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {label: row for label, row in figures["points"].items() if "us" in row}


def unraced(document: dict[str, Any]) -> str:
    rows = []
    for name, figures in document["judge"].items():
        if name in document["races"]:
            continue
        for label, row in timed(figures).items():
            cells = [span(row["us"]), span(row["baseline_us"]), f"{1 / row['ratio']:.2f}x"]
            rows.append([figures["problem"].replace(" float16", ""), label, *cells])
    return table(["problem", "point", "us", "cuDNN us", "speedup"], rows)


def points(found: dict[str, Any]) -> str:
    """A line a point, a column a problem."""
    here = {name: _of_kind(figures, SHOWN) for name, figures in found.items()}
    labels = list(dict.fromkeys(label for rows in here.values() for label in rows))
    lines = []
    for label in labels:
        cells = [f"{rows[label] / min(rows.values()):.2f}" if label in rows else "" for rows in here.values()]
        lines.append([label, *cells])
    return table(["point", *(figures["problem"].replace(" float16", "") for figures in found.values())], lines)


def _of_kind(figures: dict[str, Any], how: str) -> dict[str, float]:
    rows = {label.removesuffix(f"/{how}"): row for label, row in timed(figures).items() if label.endswith(f"/{how}")}
    return {label: row["us"]["median"] for label, row in rows.items()}


def rejected(found: dict[str, Any]) -> str:
    def lines() -> Iterator[list[str]]:
        for figures in found.values():
            for label, row in figures["points"].items():
                if "us" not in row:
                    yield [
                        figures["problem"].replace(" float16", ""),
                        label,
                        row["verdict"],
                        row["fault"].split(";")[0],
                    ]

    rows = list(lines())
    judged = sum(len(figures["points"]) for figures in found.values())
    return f"{len(rows)} of {judged}.\n\n" + table(["problem", "point", "verdict", "why"], rows)


def way_back(found: dict[str, Any]) -> str:
    rows = []
    for name, figures in found.items():
        for label in next(iter(figures.values())):
            rows.append([name, label, *(f"{each[label]['median']:.1f}" for each in figures.values())])
    return table(["problem", "point", *next(iter(found.values()))], rows)


def clocks(found: dict[str, Any]) -> str:
    rows = []
    for name, row in found.items():
        kind, mode, label = name.split(" ", 2)
        numbers = [f"{row['us']:.1f}", f"{row['mhz']:.0f}", f"{row['watts']:.0f}", str(row["reasons"])]
        rows.append([kind, mode, label, *numbers])
    return table(["inputs", "mode", "point", "us", "MHz", "W", "reasons"], rows)


def later_stress(document: dict[str, Any], judged: dict[str, Any]) -> list[str]:
    """The same of the kernel as it was later; `judged` has the problems of the letters."""
    found = {judged[name]["problem"]: each for name, each in document["stress"].items()}
    made = f"Later: {document['device']}, {document['when'][:10]}. Made by `{document['commands'][-1]}`."
    return [made, stress(found)]


def stress(found: dict[str, Any]) -> str:
    rows = [
        [name, str(row["points"]), f"{row['launches']:,}", str(row["differ"]), f"{row['from_flash']:.1e}"]
        for name, row in found.items()
    ]
    head = ["problem", "random points", "launches", "outputs that differ", "farthest from flash"]
    return table(head, rows)
