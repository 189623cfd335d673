"""Run by alembic: migrates over the connection that `migrations.upgrade` handed over, in its transaction."""

from __future__ import annotations

from alembic import context

from autotuner.store.migrations import VERSION_TABLE
from autotuner.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
