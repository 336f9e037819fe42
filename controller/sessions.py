"""The console's sessions: the cookie holds a random text, the store what it stands for. One rule for pages and REST.

A session ends by a sign-out, a new password (the others), a person who is disabled, some time without use, and in any
case some time after the sign-in. Each sign-in begins a new one and ends the one that the browser had.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from controller.settings import Settings
from controller.store import web_sessions
from controller.store.session import Store, if_it_can
from controller.store.tables import User

HOUR_MS = 3_600_000
Cookie = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session that goes on: its id, its way ("password", "oidc") and the enabled person."""

    id: str
    way: str
    user: User


def limits(settings: Settings) -> tuple[int, int]:
    """(longest time without use, longest time at all), in ms."""
    return round(settings.session_idle_hours * HOUR_MS), round(settings.session_hours * HOUR_MS)


def begin(
    cookie: Cookie,
    db: Session,
    user: User,
    now: int,
    way: str = "password",
    address: str = "",
    agent: str = "",
    id_token: str | None = None,
) -> str:
    """A new session of this person in a cookie that then holds nothing else; what it stood for before has ended. Its id.
    `id_token`: the identity provider's, sealed. In a write transaction: the session counts once that is committed."""
    end(cookie, db, now)
    session_id, token = web_sessions.create(db, user.id, way, now, address, agent, id_token)
    cookie["session"] = token
    return session_id


def end(cookie: Cookie, db: Session, now: int) -> None:
    """Ends what the cookie stands for, and empties it."""
    token = cookie.get("session")
    if isinstance(token, str):
        found = web_sessions.find(db, token, now, _EVER, _EVER)
        if found is not None:
            web_sessions.end(db, found[0].id, now)
    cookie.clear()


def find(cookie: Cookie, store: Store, settings: Settings, now: int) -> SignedIn | None:
    """The cookie's session, or None. Notes that it is used, now and then."""
    token = cookie.get("session")
    if not isinstance(token, str):
        return None
    with store.glance() as db:
        found = web_sessions.find(db, token, now, *limits(settings))
    if found is None:
        return None
    row, user = found
    if row.seen_at < now - web_sessions.SEEN_MS:
        with if_it_can("when a session was last seen"), store.write(aside=True) as db:
            web_sessions.seen(db, row.id, now)
    return SignedIn(row.id, row.way, user)


_EVER = 1 << 62
