"""The result of host_time.py as rows of a page."""

from __future__ import annotations

from typing import Any

WORDS = {
    "torch": "torch's function",
    "torch by the recorded function": "the same through `autotuner.function`",
    "ours": "the function of `load`",
    "ours, served by torch": "the same where torch serves the call",
    "ours, served by torch, without torch's function": "what of that is not torch's",
    "package": "the function of a package",
    "torch in a compiled graph": "torch's function in a compiled graph",
    "ours in a compiled graph": "the function of `load` in a compiled graph",
    "package in a compiled graph": "the function of a package in a compiled graph",
}
"""Which arms are shown, and what a reader calls them."""
THROUGH = "torch's function through `autotuner.function`"
BEFORE = {"torch": THROUGH, "torch in a compiled graph": f"{THROUGH}, in a compiled graph"}
"""The same in a result that has no arm of its own for this: there torch's function was called so."""


def table(found: dict[str, Any] | None) -> str:
    """A row a kind of call: the median of the processes' medians, with the least and the largest."""
    if found is None:
        return "Not kept yet."
    lines = ["| a call of | us of the host | least to most |", "| --- | ---: | ---: |"]
    own = "torch by the recorded function" in found["host_us"]
    for name, words in (WORDS if own else WORDS | BEFORE).items():
        if name in found["host_us"]:
            of = found["host_us"][name]
            lines.append(f"| {words} | {of['median']:.1f} | {of['least']:.1f} to {of['most']:.1f} |")
    made = (
        f"{found['problem']}, {found['processes']} processes. Made by `{found['command']}` on {found['when'][:10]};"
        f" {found['device']}, torch {found['torch']}."
    )
    return "\n".join([*lines, "", made])
