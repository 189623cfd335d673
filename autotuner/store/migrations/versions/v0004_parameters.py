"""Parameters in a table of their own, taken from the documents of the outcomes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

BATCH = 500
"""Trials that are read at a time: their documents are tens of kilobytes each."""


def upgrade() -> None:
    """Adds the table and fills it; the documents stay as they are."""
    made = op.create_table(
        "at_parameter",
        sa.Column("trial_id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger),
        sa.Column("word", sa.Text),
        sa.PrimaryKeyConstraint("trial_id", "name", name=op.f("pk_at_parameter")),
        sa.ForeignKeyConstraint(["trial_id"], ["at_trial.id"], name=op.f("fk_at_parameter_trial_id")),
        sa.CheckConstraint("(number IS NULL) <> (word IS NULL)", name=op.f("ck_at_parameter_value")),
    )
    trials = sa.table("at_trial", sa.column("id", sa.Integer), sa.column("outcome", sa.Text))
    last: int | None = 0
    while last is not None:
        query = sa.select(trials).where(trials.c.id > last).order_by(trials.c.id).limit(BATCH)
        found = op.get_bind().execute(query).all()
        rows = [row for trial, outcome in found for row in _parameters(trial, outcome)]
        if rows:
            op.bulk_insert(made, rows)
        last = found[-1][0] if found else None


def _parameters(trial: int, outcome: str) -> Iterator[dict[str, Any]]:
    variant = json.loads(outcome)["variant"]
    for name, value in {"IMPL": variant["impl"], **variant["parameters"]}.items():
        is_word = isinstance(value, str)
        yield {
            "trial_id": trial,
            "name": name,
            "number": None if is_word else int(value),
            "word": value if is_word else None,
        }
