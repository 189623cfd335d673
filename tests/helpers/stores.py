"""Stores as earlier releases wrote them, and stores that another program locks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

STORES = Path(__file__).parent.parent / "stores"


def old_store(path: Path, schema: str = "v0003") -> str:
    """Writes the store of that schema to a file; the name of its study. That of v0003 is a whole sweep of a simulated
    space with its finals: measured, raced out, rejected and revoked trials, in our tables and Optuna's."""
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((STORES / f"{schema}.sql").read_text())
        (name,) = raw.execute("SELECT name FROM at_study").fetchone()
    return str(name)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes while the block runs."""
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
