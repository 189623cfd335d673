"""docs/results/throughput.md, from the kept results of benchmarks/throughput/rates.py."""

from __future__ import annotations

import textwrap
from typing import Any

from benchmarks.markdown import table
from benchmarks.throughput.cage_cost import WAY, best

Document = dict[str, Any]


def made(document: Document) -> str:
    """Where figures come from, in a sentence."""
    return f"Made by `{document['command']}` on {document['when'][:10]}: {document['device']}, {document['cpus']} CPUs."


def cage_cost(document: Document) -> str:
    """docs/method/isolation.md: what it takes a process to enter its cage."""
    walls = document["ms"][WAY]
    told = (
        f"Entering takes a process of {document['resident_bytes'] / 2**20:.0f} MiB {best(walls):.1f} ms of the CPU, the"
        f" median of {document['processes']}."
    )
    return "\n".join([*textwrap.wrap(told, 118), made(document)])


def _rate(document: Document) -> list[str]:
    return [f"{document['a_minute']:.0f}", f"{document['a_minute_with_calibration']:.0f}"]


def _met(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _goal(name: str, goal: str, value: str, reached: bool) -> list[str]:
    return [name, goal, value, _met(reached)]


def cuda(runs: list[Document]) -> str:
    """Sweeps over the mma part."""
    head = ["run", "judged", "a minute", "with calibration", "device idle"]
    rows = [
        [
            run["when"][:10],
            str(run["judged"]),
            *_rate(run),
            _share(run["device_idle_share_while_building"]),
        ]
        for run in runs
    ]
    return "\n\n".join(
        [table(head, rows), table(["figure", "goal", "reached", "met"], _cuda_goals(runs[-1])), made(runs[-1])]
    )


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _cuda_goals(run: Document) -> list[list[str]]:
    median, idle = run["median_ms"], run["device_idle_share_while_building"]
    return [
        _goal("variants a minute", "120", f"{run['a_minute']:.0f}", run["a_minute"] >= 120),
        _goal("device idle while builds last", "below 30 %", _share(idle), idle < 0.3),
        _goal("G1 to G5, median", "150 ms", f"{median['g1_to_g5']:.0f} ms", median["g1_to_g5"] <= 150),
        _goal(
            "timing of what is stopped early, median",
            "100 ms",
            f"{median['measure_stopped_early']:.0f} ms",
            median["measure_stopped_early"] <= 100,
        ),
        _left(run),
    ]


def _left(run: Document) -> list[str]:
    left = run["time_left_at_a_quarter"]
    value = f"{left['estimated_s']:.0f} s, took {left['took_s']:.0f} s"
    return _goal("time left at a quarter", "within 30 %", value, 0.7 <= left["ratio"] <= 1.3)


def cpu(run: Document) -> str:
    """A sweep on the CPU."""
    goals = [
        _goal(
            "wall time over what the parts need",
            "1.3",
            f"{run['wall_over_needed']:.2f}",
            run["wall_over_needed"] <= 1.3,
        ),
        _left(run),
    ]
    head = ["judged", "a minute", "with calibration"]
    row = [str(run["judged"]), *_rate(run)]
    return "\n\n".join([table(head, [row]), table(["figure", "goal", "reached", "met"], goals), made(run)])


def store(run: Document, sweeps: dict[str, Document]) -> str:
    """The cost of the store and the sampler, as a share of each of the kept sweeps, by their files."""
    ms, rows = run["ms_a_trial"]["together"], []
    for name, sweep in sweeps.items():
        share = ms * sweep["a_minute"] / 60e3
        what = f"of a sweep like {name}, {sweep['a_minute']:.0f} a minute"
        rows.append(_goal(what, "below 3 %", f"{100 * share:.2f} %", share < 0.03))
    versions = f"Optuna {run['environment']['optuna']}, Python {run['environment']['python']}"
    said = (
        f"{ms:.2f} ms a trial over {run['judged']:,} trials, on a device that is made up. Made by `{run['command']}` on"
        f" {run['when'][:10]}: {run['cpus']} CPUs, {versions}."
    )
    return f"{table(['share of the wall time', 'goal', 'reached', 'met'], rows)}\n\n{said}"


def devices(runs: list[Document]) -> str:
    """Several devices, nothing left to compile."""
    head = ["run", "devices", "judged", "a minute", "ratio", "goal", "met"]
    rows = [_devices_row(run, count) for run in runs for count in run["by_devices"]]
    said = f"Made by `{runs[-1]['command']}`: {runs[-1]['device']}. Other runs differ in `--trials`."
    return f"{table(head, rows)}\n\n{said}"


def _devices_row(run: Document, count: str) -> list[str]:
    wanted = {"2": 1.8, "4": 3.4}
    each, ratio, goal = run["by_devices"][count], run["ratios"][count], wanted.get(count)
    return [
        run["when"][:10],
        count,
        str(each["judged"]),
        f"{each['a_minute']:.0f}",
        f"{ratio:.2f}x",
        f"{goal}x" if goal else "",
        _met(ratio >= goal) if goal else "",
    ]


def page(parts: dict[str, str]) -> str:
    """docs/results/throughput.md."""
    head = "# Throughput\n\nDrawn by `benchmarks/pages.py` from the JSON files beside it; do not edit. What the figures"
    head += (
        " mean stands at the top of [`rates.py`](../../benchmarks/throughput/rates.py); a goal is an aim, not a result."
    )
    return "\n\n".join([head, *(f"## {title}\n\n{text}" for title, text in parts.items())]) + "\n"
