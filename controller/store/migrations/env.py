"""Alembic's entry: runs revisions on the connection that controller/store/migrate.py hands over, and on no other."""

from __future__ import annotations

from alembic import context

from controller.store.tables import Base

connection = context.config.attributes["connection"]
# Our own BEGIN (controller/store/session.py) makes SQLite's DDL transactional: a revision is taken whole or not at all.
context.configure(connection=connection, target_metadata=Base.metadata, transactional_ddl=True, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
