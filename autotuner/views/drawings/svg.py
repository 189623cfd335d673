"""An SVG drawing, its text escaped, and the scales of its axes."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup, escape

WIDE = 600
"""Pixels from which on a drawing fills its panel, and is moved under a narrow window: shrunk, nobody can read it."""


def plain(text: object) -> str:
    """The text without what XML cannot hold."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in str(text))


def written(value: object) -> str:
    """A number with at most two places after the point, anything else as text."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return plain(value)


class Svg:
    """A drawing of a size in pixels. Attributes are keywords: `class_`, and `_` for each hyphen."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height, self._label = width, height, label
        self._parts: list[str] = []

    def add(self, tag: str, text: str | None = None, /, title: str | None = None, **attributes: object) -> None:
        """An element, with a text and with a title that shows under the pointer."""
        named = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{escape(written(value))}"'
            for name, value in attributes.items()
            if value is not None
        )
        inner = f"<title>{escape(plain(title))}</title>" if title is not None else ""
        inner += str(escape(plain(text))) if text is not None else ""
        self._parts.append(f"<{tag}{named}>{inner}</{tag}>" if inner else f"<{tag}{named}/>")

    @contextmanager
    def link(self, href: str | None) -> Iterator[None]:
        """What is added meanwhile is a link; its text is its name."""
        self._parts += [f'<a href="{escape(href)}">'] if href is not None else []
        yield
        self._parts += ["</a>"] if href is not None else []

    def line(self, x1: float, y1: float, x2: float, y2: float, class_: str = "rule") -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)

    def text(self, x: float, y: float, text: str, class_: str = "label", anchor: str = "start") -> None:
        """A line of text that begins, is centred (middle) or ends at x."""
        self.add("text", text, x=x, y=y, class_=class_, text_anchor=anchor)

    def render(self) -> Markup:
        """The element, with its label for those who do not see it."""
        body = "".join(self._parts)
        head = f'viewBox="0 0 {written(self.width)} {written(self.height)}" width="{written(self.width)}"'
        head += f' height="{written(self.height)}"'
        # An image to assistive programs unless it holds links; its table says the same.
        role = "group" if "<a " in body else "img"
        class_ = "figure wide" if self.width >= WIDE else "figure"
        label = escape(plain(self._label))
        return Markup(f'<svg class="{class_}" {head} role="{role}" aria-label="{label}">{body}</svg>')


@dataclass(frozen=True)
class Scale:
    """From values between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value; a value outside lies on the edge."""
        span = self.high - self.low
        share = (min(max(value, self.low), self.high) - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether the value lies within."""
        return self.low <= value <= self.high

    def ticks(self, wanted: int = 6, least: float = 0.0) -> list[float]:
        """Round values within, about as many as wanted, and no closer than `least`."""
        span = self.high - self.low
        if not span > 0:
            return [self.low]
        step = 10 ** math.floor(math.log10(span / wanted))
        step = max(least, step * next((factor for factor in (1, 2, 2.5, 5) if span / (step * factor) <= wanted), 10))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


def around(values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest of the finite values, with 4 % of room on both sides."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    room = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
    return low - room, high + room


def number(value: float) -> str:
    """A number on an axis."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


@dataclass(frozen=True)
class Plot:
    """A drawing with an axis to the left and one below."""

    svg: Svg
    x: Scale
    y: Scale

    @classmethod
    def of(cls, size: tuple[float, float], label: str, x: tuple[float, float], y: tuple[float, float]) -> Self:
        """An empty plot."""
        width, height = size
        return cls(Svg(width, height, label), Scale(*x, 60, width - 16), Scale(*y, height - 40, 12))

    def axes(self, x_name: str, y_name: str) -> None:
        """Grid, figures and names of both axes; along x whole numbers."""
        svg, x, y = self.svg, self.x, self.y
        for tick in y.ticks():
            svg.line(x.start, y(tick), x.end, y(tick), "grid")
            svg.text(x.start - 8, y(tick) + 4, number(tick), "tick", "end")
        for tick in x.ticks(8, 1.0):
            svg.line(x(tick), y.start, x(tick), y.start + 4, "rule")
            svg.text(x(tick), y.start + 18, number(tick), "tick", "middle")
        svg.line(x.start, y.start, x.end, y.start)
        svg.text((x.start + x.end) / 2, svg.height - 4, x_name, "name", "middle")
        centre = (y.start + y.end) / 2
        svg.add(
            "text",
            y_name,
            x=12,
            y=centre,
            class_="name",
            text_anchor="middle",
            transform=f"rotate(-90 12 {written(centre)})",
        )
