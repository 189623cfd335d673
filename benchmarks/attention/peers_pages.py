"""The parts of the documents on variants beside attention that others publish, or tune."""

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


def autotuned(document: dict[str, Any] | None) -> str:
    """A row a problem: what `triton.autotune` chose, its time, and how many times as fast the tuned variant is."""
    if document is None:
        return "Not measured yet."
    head = ["problem", "its choice", "Triton, us", "built here, us", "ours, us", "ours against Triton's"]
    rows = [
        [
            row["problem"],
            ", ".join(map(str, row["autotune"].values())),
            *(_microseconds(row["us"].get(name)) for name in ("jit", "triton", "ours")),
            _ratio(row["speedup"]["jit"]),
        ]
        for row in document["rows"]
    ]
    names = ", ".join(document["rows"][0]["autotune"])
    return (
        f"{table(head, rows)}\n\n{names}. Made by `{document['command']}` on {document['when'][:10]}:"
        f" {document['device']}, torch {document['torch']}, Triton {document['triton']}."
    )


def _microseconds(found: dict[str, float] | None) -> str:
    return "" if found is None else f"{found['median']:.1f}"


def _ratio(found: dict[str, float] | None) -> str:
    return "" if found is None else f"**{found['mid']:.2f}x** ({found['low']:.2f} to {found['high']:.2f})"
