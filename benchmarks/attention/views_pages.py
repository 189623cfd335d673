"""The part of docs/method/kernels-cuda.md on views beside dense tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.attention.decode_pages import mean
from benchmarks.attention.views import COPIES, DENSE, SAME, VIEWS, of_views
from benchmarks.markdown import table

Row = dict[str, Any]
STATE = "cold"
"""What the page shows; the JSON has both."""


def views(document: Row | None) -> str:
    """What torch and tuned variants take on both layouts, and what copies cost."""
    if document is None:
        return "Not measured yet."
    rows = document["shapes"]
    head = ["problem", "SDPA, views", "winner, dense", "winner, views", "winner, dense, and copies"]
    return "\n\n".join([table(head, [[*_cells(row)] for row in rows]), _told(rows)])


def us(row: Row, state: str, name: str) -> float | None:
    """Median microseconds of a side; None where it was not timed."""
    found = row[state]["us"].get(name)
    return None if found is None else float(found["median"])


def with_copies(row: Row, state: str, name: str) -> tuple[float, float] | None:
    """Microseconds of a side that takes dense tensors with the three copies that make them, and how many times as fast
    as torch on views that is."""
    alone, copies, baseline = us(row, state, name), us(row, state, COPIES), _baseline(row, state, "views")
    return None if alone is None or copies is None else (alone + copies, baseline / (alone + copies))


def _baseline(row: Row, state: str, layout: str) -> float:
    return float(row[state]["us"][row[state]["baseline"][layout]]["median"])


def _cells(row: Row) -> Iterator[str]:
    yield f"{row['problem']}, {row['points'][of_views(row['problem'])]['IMPL']}"
    yield f"{_baseline(row, STATE, 'views'):.2f} ({row[STATE]['baseline']['views'].split()[0]})"
    for name in (DENSE, VIEWS):
        yield _with_speedup(row, STATE, name)
    yield _sum(row, STATE, DENSE)


def _with_speedup(row: Row, state: str, name: str) -> str:
    found = us(row, state, name)
    return "" if found is None else f"{found:.2f} ({row[state]['speedup'][name]['median']:.2f}x)"


def _sum(row: Row, state: str, name: str) -> str:
    found = with_copies(row, state, name)
    return "" if found is None else f"{found[0]:.2f} ({found[1]:.2f}x)"


def _told(rows: list[Row]) -> str:
    """What the ratios are together, how the winners differ, what is missing, and where it comes from."""
    devices = ", ".join(dict.fromkeys(f"{row['device']}, torch {row['torch']}" for row in rows))
    first, *others = dict.fromkeys(f"`{row['command']}`" for row in rows)
    sentences = [
        "Microseconds, cold, and how many times as fast as torch's fastest on tensors that lie so; copies: on views.",
        f"Geometric means, in times as fast: {_means(rows, 'cold')}.",
        *(_differ(row) for row in rows if row["points"][row["problem"]] != row["points"][of_views(row["problem"])]),
        *(f"Left out at {row['problem']}: {name}: {why}." for row in rows for name, why in row["left_out"].items()),
        f"Made by {first}{' and its like' if others else ''}: {devices}.",
    ]
    return " ".join(sentences)


def _means(rows: list[Row], state: str) -> str:
    pairs = ((SAME, DENSE, "the same parameters on views as dense"), (VIEWS, SAME, "the winner of views as those"))
    found = []
    for over, under, what in pairs:
        ratios = [b / a for row in rows if (a := us(row, state, over)) and (b := us(row, state, under))]
        found += [f"{what} {mean(ratios):.3f}"] if ratios else []
    torchs = [_baseline(row, state, "dense") / _baseline(row, state, "views") for row in rows]
    return ", ".join([*found, f"SDPA on views as dense {mean(torchs):.3f}"])


def _differ(row: Row) -> str:
    """The parameters in which the winners of both layouts differ."""
    dense, viewed = row["points"][row["problem"]], row["points"][of_views(row["problem"])]
    names = [name for name in viewed if viewed[name] != dense.get(name)]
    told = ", ".join(f"{name}={viewed[name]} (dense: {dense.get(name, 'none')})" for name in names)
    return f"At {row['problem']} the winner of views has {told}."
