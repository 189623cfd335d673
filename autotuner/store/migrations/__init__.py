"""Alembic migrations of our tables, run when a store is opened.

Optuna keeps its version in `alembic_version`; ours is in `at_version`.
A new revision is a file in versions/, numbered on, and a new HEAD here.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

VERSION_TABLE = "at_version"
OLDEST = "0001"
HEAD = "0009"


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
