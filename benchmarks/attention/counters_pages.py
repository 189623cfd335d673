"""Of docs/method/kernels-cuda.md the part that counters.py beside it gives; benchmarks/pages.py writes it."""

from __future__ import annotations

from typing import Any

from benchmarks.attention.counters import DURATION, SIDES
from benchmarks.markdown import QUARTILES, table

SHOWN = {
    "time, us": (DURATION, 1e-3, 1),
    "tensor pipe busy, %": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "XU pipe (exponentials) busy, %": ("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "instructions of warps, millions": ("smsp__inst_executed.sum", 1e-6, 1),
}
"""By what a row says: the counter, what it is multiplied by, and digits behind the point."""


def counted(found: dict[str, Any] | None, tuned: dict[str, Any]) -> str:
    """A table, a column for each problem. `tuned`: what benchmarks/tuned.py found, on each device."""
    if found is None:
        return "Not kept yet."
    problems = found["problems"]
    told = [elsewhere(each, found["device"], tuned["rows"]) for each in problems]
    said = f"The first number is the variant's, the second cuDNN's. {QUARTILES} {made(found)}"
    return "\n\n".join([columns(problems), " ".join([*filter(None, told), said])])


def columns(problems: list[dict[str, Any]]) -> str:
    """The table: of each counter the variant's number and cuDNN's."""
    lines = [["speedup, not profiled", *map(timed, problems)]]
    for words, (counter, factor, digits) in SHOWN.items():
        lines.append([words, *(_both(each, counter, factor, digits) for each in problems)])
    return table(["", *(each["problem"] for each in problems)], lines)


def _both(each: dict[str, Any], counter: str, factor: float, digits: int) -> str:
    numbers = [each[side]["counters"].get(counter) for side in SIDES]
    return ", ".join("-" if number is None else f"{factor * number:.{digits}f}" for number in numbers)


def elsewhere(each: dict[str, Any], device: str, rows: list[dict[str, Any]]) -> str:
    """Where its variant was tuned, unless that is where it was counted."""
    same = [row for row in rows if all(row.get(name) == each[name] for name in ("problem", "parameters"))]
    devices = [each["tuned_on"]] if "tuned_on" in each else [row["device"] for row in same]
    where = ", ".join(devices) or "another day"
    return "" if device in devices else f"The variant of {each['problem']} was tuned on {where}."


def timed(each: dict[str, Any]) -> str:
    """The speedup without the profiler."""
    low, middle, high = (each["speedup"][name] for name in ("low", "median", "high"))
    return f"{middle:.3f}x ({low:.3f} to {high:.3f})"


def made(found: dict[str, Any]) -> str:
    """Where it comes from."""
    environment = found["environment"]
    versions = f"torch {environment['torch']}, driver {environment['driver_module']}"
    return f"Made by `{found['command']}` on {found['when'][:10]}: {found['device']}, {versions}."
