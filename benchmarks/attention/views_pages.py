"""The part of docs/method/kernels-cuda.md on views beside dense tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.attention.cuda_pages import table
from benchmarks.attention.decode_pages import STATES, mean
from benchmarks.attention.views import COPIES, DENSE, SAME, VIEWS, of_views

Row = dict[str, Any]
HEADING = "## Views beside dense tensors"
EXPLAINED = (
    "A projection's output is (batch, length, heads, head_dim); a model hands over views of it. `mma` and `wgmma` take"
    " them, and each layout is tuned for itself. Microseconds, and in brackets how many times as fast as the fastest"
    " backend of torch on tensors that lie so; with copies it is over that backend on views, as a model that makes"
    " copies has views."
)


def views(document: Row | None) -> str:
    """What torch and tuned variants take on both layouts, and what copies cost; nothing where it was not measured."""
    if document is None:
        return ""
    rows = document["shapes"]
    parts = [HEADING, EXPLAINED]
    for device in dict.fromkeys(row["device"] for row in rows):
        here = [row for row in rows if row["device"] == device]
        parts += [f"{device}, torch {here[0]['torch']}:", *(_table(here, state) for state in STATES), _told(here)]
    return "\n\n".join(parts)


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


def _table(rows: list[Row], state: str) -> str:
    head = ["problem", "SDPA, dense", "SDPA, views", "winner, dense", "its parameters, views", "winner, views"]
    head = [f"{state}: problem", *head[1:], "three copies", "winner, dense, and copies"]
    return table(head, [[*_cells(row, state)] for row in rows])


def _cells(row: Row, state: str) -> Iterator[str]:
    yield f"{row['problem']}, {row['points'][of_views(row['problem'])]['IMPL']}"
    for layout in ("dense", "views"):
        backend = row[state]["baseline"][layout].split()[0]
        yield f"{_baseline(row, state, layout):.2f} ({backend})"
    for name in (DENSE, SAME, VIEWS):
        yield _with_speedup(row, state, name)
    copies = us(row, state, COPIES)
    yield "" if copies is None else f"{copies:.2f}"
    yield _sum(row, state, DENSE)


def _with_speedup(row: Row, state: str, name: str) -> str:
    found = us(row, state, name)
    return "" if found is None else f"{found:.2f} ({row[state]['speedup'][name]['median']:.2f}x)"


def _sum(row: Row, state: str, name: str) -> str:
    found = with_copies(row, state, name)
    return "" if found is None else f"{found[0]:.2f} ({found[1]:.2f}x)"


def _told(rows: list[Row]) -> str:
    """What the ratios are together, how the winners differ, what is missing, and where it comes from."""
    said = [f"{_means(rows, state)} {state}" for state in STATES]
    made = " and ".join(dict.fromkeys(f"`{row['command']}`" for row in rows))
    sentences = [
        f"Geometric means, in times as fast: {'; '.join(said)}.",
        *(_differ(row) for row in rows),
        *(f"Left out at {row['problem']}: {name}: {why}." for row in rows for name, why in row["left_out"].items()),
        f"Made by {made}.",
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
    if not names:
        return f"At {row['problem']} both layouts have one winner."
    told = ", ".join(f"{name}={viewed[name]} (dense: {dense.get(name, 'none')})" for name in names)
    return f"At {row['problem']} the winner of views has {told}."
