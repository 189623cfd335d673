"""The part of docs/method/kernels-cuda.md on variants beside attention that others publish."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

NAMES = {"cudnn": "cuDNN", "fa3": "FlashAttention 3", "flashinfer": "FlashInfer", "flex": "flex_attention"}


def beside(document: dict[str, Any] | None) -> str:
    """A row a problem and device: how many times as fast the variant is as each, with 95 % intervals."""
    if document is None:
        return "Not measured yet."
    rows = [each for each in document["rows"] if "speedup" in each]
    there = [name for name in NAMES if any(name in row["speedup"] for row in rows)]
    lines = [
        [
            f"{row['problem']}, {row['device']}",
            f"`{row['impl']}`, {row['tflops']['variant']:.0f}",
            *(_ratio(row["speedup"].get(name)) for name in there),
        ]
        for row in rows
    ]
    head = ["problem", "variant, TFLOP/s", *(NAMES[name] for name in there)]
    return (
        f"{table(head, lines)}\n\nWarm, one race a row; times as fast, with the 95 % interval. Made by"
        f" `{document['command']}` on {document['when'][:10]}, torch {rows[0]['torch']}."
    )


def _ratio(found: dict[str, float] | None) -> str:
    return "" if found is None else f"**{found['mid']:.2f}x** ({found['low']:.2f} to {found['high']:.2f})"
