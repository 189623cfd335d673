"""What all pages of figures share."""

from __future__ import annotations

QUARTILES = "Speedups are medians of the rounds' ratios, in brackets their quartiles."
"""Below tables of speedups whose brackets are no 95 % interval."""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
