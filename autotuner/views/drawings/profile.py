"""A profile on a page: both sides under the device's roofs, and the table of their counters."""

import math

from markupsafe import Markup

from autotuner.values.profile import Profile
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.svg import Plot, number
from autotuner.views.profile_table import lines, profile_table

SIZE = (860, 260)
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
LINE = 64
"""Bytes that a miss of a CPU's last-level cache moves."""


def figure(id: str, found: Profile) -> Figure:
    """The roofline of the device with both sides in it, where it can be drawn; its table has all that was counted."""
    drawn, said = _roofline(found), lines(found)
    if drawn is not None:
        said.append("Drawn: the problem's operations over the bytes of memory that were counted, and over that time.")
    return Figure(id, "What the hardware does", " ".join(said), drawn, profile_table(found), open=True)


def _roofline(found: Profile) -> Markup | None:
    sides = [
        (look, name, found.problem.flops / moved, found.problem.flops / us * 1e6)
        for look, name, counted, us in (
            ("baseline", found.baseline, found.beside, found.us[1]),
            ("measured", "the variant", found.variant, found.us[0]),
        )
        if us is not None and (moved := _bytes(counted.counters))
    ]
    if found.ceilings is None or not sides:
        return None
    peak, per_byte = found.ceilings.flops * found.problem.TIMES_AS_FAST, found.ceilings.bytes
    ridge = peak / per_byte
    xs, ys = [ridge, *(each[2] for each in sides)], [peak, *(each[3] for each in sides)]
    x = math.floor(math.log10(min(xs) / 2)), math.ceil(math.log10(max(xs) * 2))
    y = math.floor(math.log10(min(ys) / 2)), math.ceil(math.log10(max(ys) * 1.2))
    plot = Plot.of(SIZE, f"Roofline at {found.problem}", x, y)
    _decades(plot)
    left, right = 10 ** x[0], 10 ** x[1]
    start = max(left, 10 ** y[0] / per_byte)
    for a, b in ((start, ridge), (ridge, right)):
        ends = [(plot.x(math.log10(at)), plot.y(math.log10(min(peak, at * per_byte)))) for at in (a, b)]
        plot.svg.line(*ends[0], *ends[1])
    for look, name, intensity, rate in sides:
        title = f"{name}: {intensity:.3g} operations a byte, {rate:.3g} a second, {rate / peak:.0%} of the peak"
        at = {"cx": plot.x(math.log10(intensity)), "cy": plot.y(math.log10(rate))}
        plot.svg.add("circle", **at, r=5, class_=f"dot arm-{look}", title=title)
        plot.svg.text(at["cx"] + 9, at["cy"] + 4, name)
    return plot.svg.render()


def _bytes(counters: dict[str, float]) -> float:
    if all(name in counters for name in DRAM):
        return sum(counters[name] for name in DRAM)
    return LINE * counters.get("cache-misses", 0.0)


def _decades(plot: Plot) -> None:
    """Both axes with a figure a decade; the scales are of logarithms."""
    svg, x, y = plot.svg, plot.x, plot.y
    for tick in range(int(y.low), int(y.high) + 1):
        svg.line(x.start, y(tick), x.end, y(tick), "grid")
        svg.text(x.start - 8, y(tick) + 4, f"1e{tick}", "tick", "end")
    for tick in range(int(x.low), int(x.high) + 1):
        svg.line(x(tick), y.start, x(tick), y.start + 4)
        svg.text(x(tick), y.start + 18, number(10.0**tick), "tick", "middle")
    svg.text((x.start + x.end) / 2, svg.height - 4, "operations a byte", "name", "middle")
    svg.text(x.start, 10, "operations a second", "name")
