"""Who looks at a page: the person of the session, read once a request; and where to go after a log-in."""

from __future__ import annotations

from flask import current_app, g

from controller.api import auth
from controller.context import Context
from controller.errors import NOT_ASKED
from controller.rights import Actor
from controller.store.tables import User


def context() -> Context:
    """The application's context."""
    found: Context = current_app.extensions["slotserve"]
    return found


def person() -> User | None:
    """The enabled person of the session, or None (also where the database cannot say: its error has a page too)."""
    if g.get(NOT_ASKED):
        return None
    signed_in = auth.current(context())
    return signed_in.user if signed_in is not None else None


def actor_of(row: User) -> Actor:
    return Actor(row.id, row.name, row.role, "session")


def safe_next(path: str | None) -> str:
    """A path on this site, never another site's (`//evil`, `/\\evil`, control characters)."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or any(ord(c) < 33 for c in path):
        return "/"
    return path
