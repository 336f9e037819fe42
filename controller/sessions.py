"""The console's session: a signed cookie with the person and a mark of the password it was begun with, so that a new
password ends every session from before. One rule for pages and REST."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import MutableMapping
from typing import Any

from controller.store import users
from controller.store.session import Store
from controller.store.tables import User


def begin(session: MutableMapping[str, Any], user: User) -> None:
    """Writes the person into a session that holds nothing else."""
    session["user_id"], session["mark"] = user.id, mark(user)


def person(session: MutableMapping[str, Any], store: Store) -> User | None:
    """The enabled person of a session, or None."""
    user_id, said = session.get("user_id"), session.get("mark")
    if not isinstance(user_id, str) or not isinstance(said, str):
        return None
    with store.glance() as db:
        user = users.get(db, user_id)
    if user is None or user.disabled_at is not None or not hmac.compare_digest(said.encode(), mark(user).encode()):
        return None
    return user


def mark(user: User) -> str:
    """Changes with the password; says nothing of it, for its hash is salted."""
    return hashlib.sha256(f"slotserve session {user.id} {user.password_hash}".encode()).hexdigest()[:32]
