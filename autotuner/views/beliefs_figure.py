"""What a study has shown, drawn: importances as bars, and the beliefs about the two parameters that matter most.

Needs the extra "figures"; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotuner.values.errors import InputError
from autotuner.values.variant import Value
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.surrogate_beliefs import BeliefMap, Beliefs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = 12
"""Bars, at most."""
DARK = 0.6
"""Share of the colour scale above which the colours are light, and figures on them black."""
LABELLED = 80
"""Cells, at most, of a map that has figures in them."""


def drawn(found: StudyBeliefs, path: Path) -> bytes:
    """The content of an SVG file of that name; the same beliefs give the same content.

    Raises InputError when the file's name does not end in .svg, there are no beliefs to draw or matplotlib is missing.
    """
    if path.suffix != ".svg":
        raise InputError(f"{path}: the figure is an SVG: give a name that ends in .svg")
    beliefs = found.beliefs
    if beliefs is None:
        raise InputError(
            f"{found.study} has {found.measured} measured trials, a figure needs {found.enough}: go on with"
            " `autotuner tune`"
        )
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("the figure needs matplotlib: pip install 'kernel-autotuner[figures]'") from None
    with mpl.rc_context({"svg.hashsalt": "explain", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(11, 4.6))
        figure.set_layout_engine("constrained")
        bars, heat = figure.subplots(1, 2)
        figure.suptitle(f"{found.study}: beliefs after {found.judged} of {found.points} points were judged")
        _bars(bars, beliefs)
        if beliefs.map is None:
            heat.set_axis_off()
        else:
            _heat(heat, beliefs.map)
        content = BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def _bars(axes: Axes, beliefs: Beliefs) -> None:
    """The greatest shares, of parameters and of pairs."""
    shares = [(each.parameter, each.share, each.fast_share, "C0") for each in beliefs.parameters]
    shares += [(" x ".join(each.parameters), each.share, each.fast_share, "C1") for each in beliefs.pairs]
    names, whole, fast, colours = zip(*sorted(shares, key=lambda each: -each[1])[:BARS], strict=True)
    places = np.arange(len(names))
    axes.barh(places - 0.2, whole, height=0.4, color=colours)
    axes.barh(places + 0.2, fast, height=0.4, color=colours, alpha=0.4)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set(title="blue: alone; orange: two beyond the two alone\npale: in the fastest quarter", xlabel="of variance")


def _heat(axes: Axes, beliefs: BeliefMap) -> None:
    cells = np.array([[np.nan if each is None else each for each in row] for row in beliefs.speedup])
    image = axes.imshow(cells, aspect="auto", cmap="viridis")
    axes.figure.colorbar(image, ax=axes)
    judged, rejected = np.array(beliefs.judged), np.array(beliefs.rejected)
    for mask, marker in ((judged > rejected, "o"), ((judged > 0) & (judged == rejected), "X")):
        y, x = np.nonzero(mask)
        axes.scatter(x, y + 0.28, marker=marker, color="white", edgecolors="black", linewidths=0.6, s=18)
    dark = np.nanmin(cells) + DARK * np.ptp(cells[~np.isnan(cells)])
    if cells.size <= LABELLED:
        for y, x in np.argwhere(~np.isnan(cells)):
            shade = "black" if cells[y, x] > dark else "white"
            axes.text(x, y - 0.1, f"{cells[y, x]:.2f}x", ha="center", va="center", color=shade, fontsize=8)
    axes.set_xticks(range(len(beliefs.x_values)), _labels(beliefs.x_values))
    axes.set_yticks(range(len(beliefs.y_values)), _labels(beliefs.y_values))
    title = "believed speedup of the fastest point\no judged, x judged and all rejected; white: no valid point"
    axes.set(title=title, xlabel=beliefs.x, ylabel=beliefs.y)


def _labels(values: Iterable[Value | None]) -> list[str]:
    return ["absent" if value is None else str(value) for value in values]
