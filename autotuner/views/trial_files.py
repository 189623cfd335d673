"""The trials of a study as rows for other programs, and as CSV."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Any

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
