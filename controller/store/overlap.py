"""The overlap rule in the database's own words: two holding reservations of a channel never share an instant.

SQLite: triggers, enough because writes there are serial. PostgreSQL: an exclusion constraint. Migrations create them
(and must create them again where they rebuild the table); `refused` recognises the database's refusal.
"""

from __future__ import annotations

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

NAME = "reservations_no_overlap"
TRIGGERS = (f"{NAME}_insert", f"{NAME}_update")
_HOLDING = "('pending', 'approved')"
_BODY = f"""
WHEN NEW.status IN {_HOLDING} AND EXISTS (
    SELECT 1 FROM reservations AS other
    WHERE other.channel_id = NEW.channel_id AND other.id <> NEW.id AND other.status IN {_HOLDING}
      AND other.starts_at < NEW.ends_at AND NEW.starts_at < other.ends_at)
BEGIN
    SELECT RAISE(ABORT, '{NAME}');
END"""
SQLITE = (
    f"CREATE TRIGGER {TRIGGERS[0]} BEFORE INSERT ON reservations {_BODY}",
    f"CREATE TRIGGER {TRIGGERS[1]} BEFORE UPDATE OF channel_id, starts_at, ends_at, status ON reservations {_BODY}",
)
POSTGRESQL = (
    "CREATE EXTENSION IF NOT EXISTS btree_gist",
    f"ALTER TABLE reservations ADD CONSTRAINT {NAME} EXCLUDE USING gist "
    "(channel_id WITH =, int8range(starts_at, ends_at, '[)') WITH &&) "
    f"WHERE (status IN {_HOLDING})",
)


def create(connection: Connection) -> None:
    """Puts the rule into the database (once: it fails where it is already there)."""
    for statement in SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL:
        connection.execute(text(statement))


def missing(connection: Connection) -> list[str]:
    """Names of what is not in the database; empty when the rule is in force."""
    if connection.dialect.name == "sqlite":
        there = set(connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars())
        return [name for name in TRIGGERS if name not in there]
    found = connection.execute(text("SELECT 1 FROM pg_constraint WHERE conname = :name"), {"name": NAME}).first()
    return [] if found else [NAME]


def refused(err: IntegrityError) -> bool:
    """Whether the database refused a write because two reservations would overlap."""
    return NAME in str(err.orig)
