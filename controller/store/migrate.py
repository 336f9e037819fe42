"""Brings a database to the version this program knows, and says in words what is wrong with one.

Alembic runs on our own connection; the whole upgrade is one write transaction (controller/store/session.py), taken whole
or not at all, so that several controllers may start at once.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from controller.store import overlap
from controller.store.session import Store
from controller.store.tables import Base

log = logging.getLogger(__name__)
SCRIPTS = Path(__file__).parent / "migrations"
OLDEST_POSTGRESQL = 13


class MigrationError(RuntimeError):
    """The database cannot be brought to this version; the message says why and what to do."""


def upgrade(store: Store, to: str = "head") -> None:
    """Runs every revision that the database lacks; nothing where it is up to date. Raises MigrationError in words."""
    try:
        with store.engine.execution_options(write=True).begin() as connection:
            if told := _too_old(connection):
                raise MigrationError(told)
            before = _version(connection)
            if before is not None and before not in _known():
                raise MigrationError(_too_new(before))
            if before == head():
                return
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, to)
            log.info("database migrated from=%s to=%s", before or "empty", to)
    except SQLAlchemyError as err:
        raise MigrationError(_in_words(err)) from err


def check(store: Store) -> list[str]:
    """What is wrong with the database, each in a sentence with the remedy; empty = nothing."""
    try:
        with store.engine.connect() as connection:
            return [told] if (told := _too_old(connection)) else _problems(connection)
    except SQLAlchemyError as err:
        return [_in_words(err)]


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
            f"the overlap rule {name} is missing: double bookings would be possible; {overlap.REMEDY}"
            for name in overlap.missing(connection)
        ]
    for table in ("leader", "revision"):
        if table in there and connection.execute(text(f"SELECT 1 FROM {table} WHERE id = 1")).first() is None:
            problems.append(f"table {table} has lost its row: restore a backup")
    return problems


def _too_old(connection: Connection) -> str:
    """Words where the server is older than what the migrations and the tests are for."""
    version = connection.dialect.server_version_info
    if connection.dialect.name == "sqlite" or version is None or version >= (OLDEST_POSTGRESQL,):
        return ""
    return f"the database server is PostgreSQL {version[0]}: SlotServe needs {OLDEST_POSTGRESQL} or newer"


def _in_words(err: SQLAlchemyError) -> str:
    """What a database's refusal means and what to do; the first lines of its own words are kept."""
    said = " ".join(str(getattr(err, "orig", None) or err).split())[:500]
    for code, words in overlap.RIGHTS.items():
        if code in said:
            return f"{words} ({said})"
    state = getattr(getattr(err, "orig", None), "sqlstate", None) or ""
    if state == "42501":
        return f"the database user lacks a right: give it the database (ALTER DATABASE … OWNER TO …) ({said})"
    if isinstance(err, OperationalError):
        return (
            f"the database cannot be reached or read: {said}; check SLOTSERVE_DATABASE_URL, that the server runs, "
            "and its permissions"
        )
    return f"the database refused: {said}"


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
