"""Alembic migrations of our tables, run when a store is opened.

Optuna keeps its version in `alembic_version`; ours is in `at_version`.
A new revision is a file in versions/, numbered on, and a new HEAD here. One that has landed is never edited, as there
are stores that it has made: a test holds its digest.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

VERSION_TABLE = "at_version"
OLDEST = "0200"
"""The schema of 0.2.0, the first release. What was written before has another one, 0001 to 0009."""
HEAD = "0200"


def upgrade(connection: Connection) -> None:
    """Brings our tables to HEAD in the connection's own transaction. Another process waits, then has nothing to do."""
    # Loaded here because most openings have nothing to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
