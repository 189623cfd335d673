"""The curves of benchmarks/search/replay.py, drawn. Needs the extra "figures"."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMNS = 2
LEAST = 1e-3
"""The optimum itself has no place on a logarithmic axis: it is drawn as this far above."""


def draw(document: dict[str, Any], path: Path) -> None:
    """One panel a space: how far the best so far is above the optimum, against the share of the budget (time axis).

    The same document gives the same file.
    """
    spaces = document["spaces"]
    rows = ceil(len(spaces) / COLUMNS)
    with mpl.rc_context({"svg.hashsalt": "replay", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(5 * COLUMNS, 3.2 * rows + 0.6), layout="constrained")
        panels = figure.subplots(rows, COLUMNS, squeeze=False).flatten().tolist()
        for panel, (name, space) in zip(panels, spaces.items(), strict=False):
            _panel(panel, name, space, [row for row in document["rows"] if row["space"] == name])
        for panel in panels[len(spaces) :]:
            panel.set_axis_off()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(panel: Axes, name: str, space: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    optimum, budget = space["optimum_ms"], space["budget"]["worker_seconds"]

    def above(ms: list[float]) -> list[float]:
        return [max(each / optimum - 1, LEAST) for each in ms]

    x = [each / budget for each in space["curve"]["x"]]
    panel.plot(x, above(space["curve"]["random"]), color="black", linestyle="--", label="random search, calculated")
    for place, row in enumerate(rows):
        curve, colour = row["curve"], f"C{place}"
        beside = f", {row['in_flight']} in flight" if row["in_flight"] > 1 else ""
        panel.plot(x, above(curve["best"]), color=colour, label=f"{row['sampler']}{beside}")
        panel.fill_between(x, above(curve["low"]), above(curve["high"]), color=colour, alpha=0.15, linewidth=0)
    panel.set(title=name, xlabel="share of the budget", ylabel="above the optimum", yscale="log", xlim=(0, 1))
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    panel.grid(alpha=0.3)
