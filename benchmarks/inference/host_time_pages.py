"""The results of host_time.py, new_lengths.py and generate.py, as a page shows them."""

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
NOTHING, CACHES = "nothing", ("growing", "static")
"""Of generate.py: the arm whose attention computes nothing, and the kinds of caches."""


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
    return "\n".join([*lines, "", _made(found) if found else ""])


def loops(*kept: dict[str, Any] | None) -> str:
    """A row a machine, kind of cache and batch. What the loop takes without attention is what it cannot gain; where
    nothing is served, no variant was shown to be faster than torch there."""
    found = [each for each in kept if each is not None]
    if not found:
        return "Not kept yet."
    lines = [
        "| on | cache | batch | of torch's speed | of its flash backend's | without attention, of both | served |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for of, each in ((one, each) for one in found for each in one["loops"]):
        taken = each["seconds"]
        ours, most = (
            [f"{taken[theirs] / taken[arm]:.3f}x" if theirs in taken else "-" for theirs in ("torch", "flash")]
            for arm in ("ours", NOTHING)
        )
        threads = f", {of['threads']} threads" if "threads" in of else ""
        lines.append(
            f"| {of['device']}{threads}, {of['dtype']} | {each.get('cache', CACHES[0])} | {each['batch']}"
            f" | {' | '.join(ours)} | {', '.join(most)} | {100 * each['served']:.0f} % |"
        )
    keys = min(each["until"] - each["steps"] for one in found for each in one["loops"])
    return "\n".join([*lines, "", f"From {keys:,} keys on. {_made(found)}"])


def _made(found: list[dict[str, Any]]) -> str:
    """By which program; the files have the arguments."""
    made = " ".join(found[0]["command"].split()[:3])
    return f"Made by `{made}`; torch {', '.join(each['torch'] for each in found)}."
