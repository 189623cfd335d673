"""Of docs/method/kernels-cuda.md the part that counters.py beside it gives; benchmarks/pages.py writes it."""

from __future__ import annotations

from typing import Any

from benchmarks.attention.counters import DURATION, SIDES, STALLED
from benchmarks.attention.cuda_pages import QUARTILES

SHOWN = {
    "time, us": (DURATION, 1e-3, 1),
    "clock of the multiprocessors, GHz": ("gpc__cycles_elapsed.avg.per_second", 1e-9, 2),
    "tensor pipe busy, %": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "XU pipe (exponentials) busy, %": ("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "FMA pipe busy, %": ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "ALU pipe busy, %": ("sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "cycles in which an instruction is issued, %": ("smsp__issue_active.avg.pct_of_peak_sustained_active", 1, 1),
    "instructions of warps, millions": ("smsp__inst_executed.sum", 1e-6, 1),
    "warps stalled for each issue: fixed latency": (STALLED.format("wait"), 1, 2),
    "the same: memory": (STALLED.format("long_scoreboard"), 1, 2),
    "the same: barrier": (STALLED.format("barrier"), 1, 2),
}
"""By what a row says: the counter, what it is multiplied by, and digits behind the point."""


def counted(found: dict[str, Any] | None, tuned: dict[str, Any]) -> str:
    """Tables of two problems each, a column for each side. `tuned`: what benchmarks/tuned.py found, on each device."""
    if found is None:
        return "Not kept yet."
    problems = found["problems"]
    tables = [columns(problems[first : first + 2]) for first in range(0, len(problems), 2)]
    told = "\n".join(timed(each) + elsewhere(each, found["device"], tuned["rows"]) for each in problems)
    return "\n\n".join([*tables, told, f"{QUARTILES} {made(found)}"])


def columns(problems: list[dict[str, Any]]) -> str:
    """The table of some problems."""
    sides = [(each, side) for each in problems for side in SIDES]
    lines = [
        "| | " + " | ".join(f"{each['problem']}: {side}" for each, side in sides) + " |",
        "| --- |" + " ---: |" * len(sides),
    ]
    for words, (counter, factor, digits) in SHOWN.items():
        numbers = [each[side]["counters"].get(counter) for each, side in sides]
        shown = ["-" if number is None else f"{factor * number:.{digits}f}" for number in numbers]
        lines.append(f"| {words} | {' | '.join(shown)} |")
    return "\n".join(lines)


def elsewhere(each: dict[str, Any], device: str, rows: list[dict[str, Any]]) -> str:
    """Where its variant was tuned, unless that is where it was counted."""
    same = [row for row in rows if all(row.get(name) == each[name] for name in ("problem", "parameters"))]
    devices = [each["tuned_on"]] if "tuned_on" in each else [row["device"] for row in same]
    return "" if device in devices else f". It is the variant that was tuned on {', '.join(devices) or 'another day'}"


def timed(each: dict[str, Any]) -> str:
    """What both take without the profiler."""
    took = "; ".join(f"{side} {each['us'][side]['median']:.1f} us" for side in SIDES)
    low, middle, high = (each["speedup"][name] for name in ("low", "median", "high"))
    variant = " ".join(f"{name}={value}" for name, value in each["parameters"].items())
    return f"- {each['problem']} timed without the profiler: {took}; {middle:.3f}x ({low:.3f} to {high:.3f}). {variant}"


def made(found: dict[str, Any]) -> str:
    """Where it comes from."""
    environment = found["environment"]
    versions = f"torch {environment['torch']}, driver {environment['driver_module']}"
    return f"Made by `{found['command']}` on {found['when'][:10]}: {found['device']}, {versions}."
