"""Stores as earlier releases wrote them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

STORES = Path(__file__).parent.parent / "stores"


def old_store(path: Path, schema: str = "v0003") -> str:
    """Writes the store of that schema to a file; the name of its study. That of v0003 is a whole sweep of a simulated
    space with its finals: measured, raced out, rejected and revoked trials, in our tables and Optuna's."""
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((STORES / f"{schema}.sql").read_text())
        (name,) = raw.execute("SELECT name FROM at_study").fetchone()
    return str(name)
