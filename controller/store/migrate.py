"""Brings a database to the version this program knows, and says in words what is wrong with one.

Alembic runs on our own connection; on SQLite the whole upgrade is one IMMEDIATE transaction, on PostgreSQL one that
holds a transaction lock, so that several controllers may start at once.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from controller.store import overlap
from controller.store.session import Store
from controller.store.tables import Base

log = logging.getLogger(__name__)
SCRIPTS = Path(__file__).parent / "migrations"
_LOCK = 7360810  # any fixed number: who upgrades a PostgreSQL database


class MigrationError(RuntimeError):
    """The database cannot be brought to this version; the message says why and what to do."""


def upgrade(store: Store) -> None:
    """Runs every revision that the database lacks; nothing where it is up to date. Raises MigrationError."""
    with store.engine.execution_options(write=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK})
        before = _version(connection)
        if before is not None and before not in _known():
            raise MigrationError(_too_new(before))
        if before == head():
            return
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        log.info("database migrated from=%s to=%s", before or "empty", head())


def check(store: Store) -> list[str]:
    """What is wrong with the database, each in a sentence with the remedy; empty = nothing."""
    try:
        with store.engine.connect() as connection:
            return _problems(connection)
    except SQLAlchemyError as err:
        reason = str(getattr(err, "orig", None) or err).splitlines()[0]
        return [f"the database cannot be reached or read: {reason}; check SLOTSERVE_DATABASE_URL and its permissions"]


@cache
def head() -> str:
    """The revision that this program expects."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def known(revision: str) -> bool:
    """Whether this program can bring a database of that revision up to date."""
    return revision in _known()


def _problems(connection: Connection) -> list[str]:
    version = _version(connection)
    if version is None:
        return ["the database has not been migrated: run `slotserve migrate`"]
    if version not in _known():
        return [_too_new(version)]
    if version != head():
        return [f"the database is at revision {version}, this program needs {head()}: run `slotserve migrate`"]
    there = set(inspect(connection).get_table_names())
    problems = [f"table {t} is missing: restore a backup" for t in Base.metadata.tables if t not in there]
    if "reservations" in there:
        problems += [
            f"the overlap rule {name} is missing: double bookings would be possible; restore a backup"
            for name in overlap.missing(connection)
        ]
    for table in ("leader", "revision"):
        if table in there and connection.execute(text(f"SELECT 1 FROM {table} WHERE id = 1")).first() is None:
            problems.append(f"table {table} has lost its row: restore a backup")
    return problems


def _too_new(version: str) -> str:
    return f"the database is at revision {version}, which is newer than this program: install the newer SlotServe"


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


@cache
def _known() -> frozenset[str]:
    return frozenset(s.revision for s in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return config
