"""The trials of a study as files for other programs: CSV and Parquet."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Any

from autotuner.values.errors import InputError
from autotuner.views.table import Table
from autotuner.views.words import POINTS


def flat(trials: Table) -> list[dict[str, object]]:
    """The rows with each parameter in a column of its own; their names alone have capitals."""

    def one(line: dict[str, Any]) -> dict[str, object]:
        parameters = line.pop(POINTS)
        return {**line, **parameters}

    return [one(line) for line in trials.lines()]


def columns(trials: Table) -> tuple[str, ...]:
    """What every trial has, then each parameter that any of them has, IMPL first."""
    fixed = [each.key for each in trials.columns if each.key != POINTS]
    parameters = {name for line in flat(trials) for name in line} - {*fixed}
    return (*fixed, *sorted(parameters, key=lambda name: (name != "IMPL", name)))


def as_csv(trials: Table) -> str:
    """A line a trial below the names of the columns; what a trial does not have is empty. Times are ISO 8601, UTC."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(trials), lineterminator="\n")
    writer.writeheader()
    for line in flat(trials):
        writer.writerow({name: each.isoformat() if isinstance(each, datetime) else each for name, each in line.items()})
    return text.getvalue()


def as_parquet(trials: Table) -> bytes:
    """The content of a Parquet file with the columns of the CSV, typed: numbers, booleans, text and UTC timestamps.

    A parameter that is a number in one trial and a word in another is text. Raises InputError where pyarrow is missing.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'kernel-autotuner[data]', or use --csv") from None
    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), datetime: pa.timestamp("us", "UTC")}
    fixed = {each.key: kinds.get(each.type, pa.string()) for each in trials.columns}
    rows, arrays = flat(trials), {}
    for name in columns(trials):
        values: list[Any] = [row.get(name) for row in rows]
        if name in fixed:  # its type does not depend on what is in it: files of several studies can be put together
            arrays[name] = pa.array(values, type=fixed[name])
        elif any(isinstance(value, str) for value in values):
            arrays[name] = pa.array([None if value is None else str(value) for value in values], type=pa.string())
        else:
            arrays[name] = pa.array(values, type=pa.int64())
    made = pa.table(arrays)
    content = io.BytesIO()
    parquet.write_table(made, content)
    return content.getvalue()
