"""What the tests that need a GPU said, in a sentence; benchmarks/pages.py writes it."""

from __future__ import annotations

from typing import Any


def said(found: dict[str, Any] | None) -> str:
    """How many ran and what became of them. `found`: what `benchmarks.tests_run` kept."""
    if found is None:
        return "Not kept yet."
    told = ", ".join(f"{count} {name}" for name, count in found["counts"].items() if count)
    return (
        f"{told} on {found['device']}, torch {found['torch']} ([kept](docs/results/tests_gpu.json)). Made by"
        f" `{found['command']}` on {found['when'][:10]}."
    )
