"""The overlap rule in the database's own words: two holding reservations of a channel never share an instant.

SQLite: triggers, enough because writes there are serial. PostgreSQL: an exclusion constraint. Migrations create them
(and must create them again where they rebuild the table); `refused` recognises the database's refusal.
"""

from __future__ import annotations

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

NAME = "reservations_no_overlap"
WINDOW = "reservations_window"  # the CHECK of controller/store/tables.py
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
REMEDY = "restore a backup"
# Words of PostgreSQL where the extension that the constraint needs cannot be made, and what to do.
RIGHTS = {
    'permission denied to create extension "btree_gist"': (
        "the overlap rule needs the extension btree_gist, which this database user may not create: have an "
        "administrator run CREATE EXTENSION btree_gist in this database, then run `slotserve migrate` again"
    ),
    'extension "btree_gist"': (
        "the overlap rule needs the extension btree_gist, which this server does not have: install PostgreSQL's "
        "contrib package, then run `slotserve migrate` again"
    ),
}


def create(connection: Connection) -> None:
    """Puts the rule into the database (once: it fails where it is already there)."""
    for statement in SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL:
        connection.execute(text(statement))


def missing(connection: Connection) -> list[str]:
    """Names of what is not in the database; empty when the rule is in force. An empty window would meet no other, so
    the CHECK that refuses it belongs to the rule."""
    if connection.dialect.name == "sqlite":
        there = set(connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars())
        table = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'reservations'")).scalar_one()
        return [name for name in TRIGGERS if name not in there] + ([] if WINDOW in table else [WINDOW])
    there = set(
        connection.execute(
            text(
                "SELECT conname FROM pg_constraint WHERE conrelid = 'reservations'::regclass AND convalidated "
                "AND (contype = 'x' AND pg_get_constraintdef(oid) LIKE '%int8range(starts_at, ends_at%' "
                "OR contype = 'c')"
            )
        ).scalars()
    )
    return [name for name in (NAME, WINDOW) if name not in there]


def refused(err: IntegrityError) -> bool:
    """Whether the database refused a write because two reservations would overlap."""
    named = getattr(getattr(err.orig, "diag", None), "constraint_name", None)  # psycopg's word for it
    return named == NAME if named else NAME in str(err.orig)
