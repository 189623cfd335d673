"""The trials of a study as files for other programs: CSV, JSON, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, get_args

from pydantic import JsonValue

from autotuner.values.errors import InputError
from autotuner.values.variant import Value
from autotuner.views.trial_lines import TrialLine


def columns(lines: Sequence[TrialLine]) -> tuple[str, ...]:
    """Of a table of them: what every trial has, then each parameter that any of them has, IMPL first."""
    fixed = [name for name in TrialLine.model_fields if name != "parameters"]
    parameters = {name for line in lines for name in line.parameters}
    return (*fixed, *sorted(parameters, key=lambda name: (name != "IMPL", name)))


def as_csv(lines: Sequence[TrialLine]) -> str:
    """A line a trial below the names of the columns; what a trial does not have is empty. Times are ISO 8601, UTC."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(lines), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({**line.flat(), "recorded_at": line.recorded_at.isoformat()})
    return text.getvalue()


def as_json(lines: Sequence[TrialLine]) -> list[JsonValue]:
    """JSON-ready data, an object a trial; its parameters are an object in it."""
    return [json.loads(line.model_dump_json()) for line in lines]


def as_parquet(lines: Sequence[TrialLine]) -> bytes:
    """The content of a Parquet file with the columns of the CSV, typed: numbers, booleans, text and UTC timestamps.

    A parameter that is a number in one trial and a word in another is text. Raises InputError where pyarrow is missing.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'autotuner[data]', or use --csv") from None
    rows = [line.flat() for line in lines]
    arrays = {name: _column([row.get(name) for row in rows]) for name in columns(lines)}
    made = pa.table({name: pa.array(values, type=_type(pa, name, values)) for name, values in arrays.items()})
    content = io.BytesIO()
    parquet.write_table(made, content)
    return content.getvalue()


def _column(values: list[Any]) -> list[Any]:
    """Of one type: words where there are words and numbers."""
    if {type(value) for value in values if value is not None} == {int, str}:
        return [None if value is None else str(value) for value in values]
    return values


def _type(pa: Any, name: str, values: Sequence[Value | None]) -> Any:
    """The column's type. That of a fixed column does not depend on what is in it: files of several studies can be put
    together."""
    field = TrialLine.model_fields.get(name)
    if field is None:
        return pa.string() if any(isinstance(value, str) for value in values) else pa.int64()
    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), datetime: pa.timestamp("us", "UTC")}
    named = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    return kinds.get(named[0], pa.string())
