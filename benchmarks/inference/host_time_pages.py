"""The results of host_time.py and new_lengths.py, as a page shows them."""

from __future__ import annotations

from typing import Any

WORDS = {
    "torch": "torch's function",
    "torch by the recorded function": "the same through `autotuner.function`",
    "ours": "the function of `load`",
    "ours, served by torch, without torch's function": "the same where torch serves the call, without torch's function",
    "torch in a compiled graph": "torch's function in a compiled graph",
    "ours in a compiled graph": "the function of `load` in a compiled graph",
}
"""Which arms are shown, and what a reader calls them."""


def table(found: dict[str, Any] | None) -> str:
    """A row a kind of call: the median of the processes' medians, with the least and the largest."""
    if found is None:
        return "Not kept yet."
    lines = ["| a call of | us of the host | least to most |", "| --- | ---: | ---: |"]
    for name, words in WORDS.items():
        of = found["host_us"][name]
        lines.append(f"| {words} | {of['median']:.1f} | {of['least']:.1f} to {of['most']:.1f} |")
    made = (
        f"{found['problem']}, {found['processes']} processes. Made by `{found['command']}` on {found['when'][:10]};"
        f" {found['device']}, torch {found['torch']}."
    )
    return "\n".join([*lines, "", made])


def growing(*kept: dict[str, Any] | None) -> str:
    """A row a machine: calls of new lengths that torch serves, and a decoder whose cache grows by one a step."""
    found = [each for each in kept if each is not None]
    lines = ["| on | first call, us | torch's | later call, us | torch's | decoder, of torch's time |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    for each in found:
        ours, torch = each["host_us"]["ours"], each["host_us"]["torch"]
        calls = " | ".join(f"{of[name]:.1f}" for name in ("first", "later") for of in (ours, torch))
        lines.append(f"| {each['device']} | {calls} | {each['growing']['times_as_long']:.3f} |")
    made = " ".join(found[0]["command"].split()[:3]) if found else ""
    return "\n".join([*lines, "", f"Made by `{made}`; torch {', '.join(each['torch'] for each in found)}."])
