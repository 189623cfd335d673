"""The parts of the documents on variants beside attention that others publish, or tune."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from statistics import fmean
from typing import Any

from benchmarks.markdown import table

Row = dict[str, Any]

NAMES = {"cudnn": "cuDNN", "fa3": "FlashAttention 3", "flashinfer": "FlashInfer", "flex": "flex_attention"}
COLOURS = {"cudnn": "#1f77b4", "fa3": "#d62728", "flashinfer": "#9467bd", "flex": "#777777"}
DARK, LIGHT = "#333333", "#dddddd"
LEFT, WIDTH, LINE, TOP = 400, 330, 14, 40
"""Pixels: where the axis begins and how long it is, the height of a row, and where the first one is."""
FROM, TO = 0.9, 2.0
"""Times as fast, at the two ends of the axis; what is beyond stands at the end."""


def beside(document: Row | None, path: str) -> str:
    """The figure with what it says in sentences. `path`: where it lies."""
    if document is None:
        return "Not measured yet."
    rows = raced(document)
    there = [name for name in NAMES if any(name in row["speedup"] for row in rows)]
    devices = ", ".join(dict.fromkeys(row["device"] for row in rows))
    return (
        f"![Variants beside what others publish]({path})\n\nWarm, one race a row, with 95 % intervals."
        f" {' '.join(_said(name, rows) for name in there)} {devices}; made by `python -m benchmarks.attention.peers`"
        f" until {document['when'][:10]}, torch {rows[0]['torch']}."
    )


def brief(document: Row | None) -> str:
    """The same of FlashAttention 3 alone, for README.md."""
    rows = [row for row in raced(document) if "fa3" in row["speedup"]] if document is not None else []
    said = f"{_said('fa3', rows)} ([figure](docs/method/kernels-cuda.md#beside-others))." if rows else ""
    return said.replace(". (", " (")


def raced(document: Row) -> list[Row]:
    """The rows that have a race: by device, dtype, head dimension, mask and size."""
    rows = [each for each in document["rows"] if "speedup" in each]
    return sorted(rows, key=lambda row: (row["device"], *_order(row["problem"])))


def _order(text: str) -> tuple[Any, ...]:
    sizes, *words = text.split()
    numbers = [each.split(":")[0] for each in sizes.strip("()").split(",")]
    batch, heads, length, dim = (int(each.split("x")[-1]) for each in numbers)
    return words[0], dim, " ".join(words[1:]), batch * heads, length


def _said(name: str, rows: Sequence[Row]) -> str:
    """How the variants of all rows stand beside one of the others."""
    found = [row["speedup"][name] for row in rows if name in row["speedup"]]
    mean = math.exp(fmean(math.log(each["mid"]) for each in found))
    faster, slower = sum(each["low"] > 1 for each in found), sum(each["high"] < 1 for each in found)
    return (
        f"{NAMES[name]}: faster in {faster} of {len(found)} rows{f', slower in {slower}' if slower else ''};"
        f" geometric mean {mean:.2f}x, least {min(each['mid'] for each in found):.2f}x."
    )


def figure(document: Row | None) -> str:
    """Bars on one axis, a line a problem, as SVG."""
    rows = [] if document is None else raced(document)
    width, height = LEFT + WIDTH + 20, TOP + LINE * len(rows) + 8
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="10">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_axis(height),
        *(part for place, row in enumerate(rows) for part in _line(row, TOP + LINE * place + 10)),
        "</svg>",
    ]
    return "\n".join(drawn) + "\n"


def _axis(height: int) -> Iterator[str]:
    yield _text(4, 28, "problem", DARK)
    yield _text(228, 28, "TFLOP/s, of a product; MHz", DARK)
    for place, (name, colour) in enumerate(COLOURS.items()):
        yield _text(LEFT + 90 * place - 80, 12, NAMES[name], colour)
    for tick in (0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0):
        yield f'<path d="M{_x(tick)} 32V{height}" stroke="{DARK if tick == 1 else LIGHT}"/>'
        yield _text(_x(tick) - 10, 28, f"{tick:g}x", DARK)


def _line(row: Row, y: int) -> Iterator[str]:
    tflops = row["tflops"]
    yield _text(4, y, row["problem"], DARK)
    said = f"{tflops['variant']:.0f} of {tflops['product']:.0f}; {row['mhz']['median']:.0f}  {row['impl']}"
    yield _text(228, y, said, DARK)
    for name, found in row["speedup"].items():
        low, mid, high = (_x(found[each]) for each in ("low", "mid", "high"))
        yield f'<path d="M{low} {y - 3}H{max(high, low + 1)}" stroke="{COLOURS[name]}" stroke-width="3"/>'
        yield f'<circle cx="{mid}" cy="{y - 3}" r="3" fill="{COLOURS[name]}"/>'


def _x(ratio: float) -> int:
    """The place of a ratio on a logarithmic axis."""
    inside = min(TO, max(FROM, ratio))
    return round(LEFT + WIDTH * math.log(inside / FROM) / math.log(TO / FROM))


def _text(x: int, y: int, text: str, colour: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{escape(text)}</text>'


def floors(document: Row | None) -> str:
    """What a small problem takes with parts of the kernel taken out, and at other points."""
    if document is None:
        return "Not measured yet."
    times = {name: each["median"] for name, each in document["us"].items()}
    parts = ", ".join(f"{name} {us:.2f}" for name, us in times.items() if "=" not in name)
    others = {us: name for name, us in times.items() if "=" in name}
    said = f" Of {len(others)} other points the fastest: {min(others):.2f}, `{others[min(others)]}`." if others else ""
    return (
        f"{document['problem']}, microseconds, warm, in graphs: {parts}.{said} Made by"
        f" `python -m benchmarks.attention.floors` on {document['when'][:10]}: {document['device']}, torch"
        f" {document['torch']}."
    )


IDEAS = ("ideas", "ideas_changed", "ideas_half", "ideas_capped", "ideas_deep", "ideas_long")
"""Kept results of ideas."""
LITTLE = 0.01
"""An idea that changes no time by more."""


def ideas(*documents: Row | None) -> str:
    """What each idea gives: the least and the most."""
    kept = [each for each in documents if each is not None]
    if not kept:
        return "Not measured yet."
    speeds: dict[str, list[dict[str, float]]] = {}
    rows = [row for each in kept for row in each["rows"]]
    for row in rows:
        if "speed" in row:
            speeds.setdefault(row["idea"].split(",")[0], []).append(row["speed"])
    spans = {
        name: (min(each["mid"] for each in found), max(each["mid"] for each in found)) for name, found in speeds.items()
    }
    little = [name for name, span in spans.items() if all(abs(each - 1) <= LITTLE for each in span)]
    lines = [f"{name} {low:.2f}-{high:.2f}" for name, (low, high) in spans.items() if name not in little]
    problems = len({row["problem"] for row in rows})
    made = f"`python -m benchmarks.attention.ideas`, {kept[-1]['when'][:10]}, {kept[-1]['device']}"
    return (
        f"Time without an idea over time with it, least and most of {problems} problems: {'; '.join(lines)};"
        f" within {LITTLE:.0%}: {', '.join(little)}. {made}, torch {kept[-1]['torch']}."
    )


def autotuned(document: dict[str, Any] | None) -> str:
    """A row a problem: what `triton.autotune` chose, its time, and how many times as fast the tuned variant is."""
    if document is None:
        return "Not measured yet."
    head = ["problem", "its choice", "us", "ours, us", "ours against it"]
    rows = [
        [
            row["problem"],
            ",".join(map(str, row["autotune"].values())),
            *(f"{row['us'][name]['median']:.1f}" for name in ("jit", "ours")),
            _ratio(row["speedup"]["jit"]),
        ]
        for row in document["rows"]
    ]
    names = ", ".join(document["rows"][0]["autotune"])
    return (
        f"{table(head, rows)}\n\n{names}. Made by `{document['command']}` on {document['when'][:10]}:"
        f" {document['device']}, torch {document['torch']}, Triton {document['triton']}."
    )


def _ratio(found: dict[str, float] | None) -> str:
    return "" if found is None else f"**{found['mid']:.2f}x** ({found['low']:.2f} to {found['high']:.2f})"
