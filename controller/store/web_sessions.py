"""Sign-ins to the console: a row each, so that one that has ended is dead at once, wherever a copy of its cookie lies."""

from __future__ import annotations

import secrets

from sqlalchemy import ColumnElement, and_, select, update
from sqlalchemy.orm import Session

from controller.store.guard import changed
from controller.store.keys import digest
from controller.store.tables import User, WebSession

SEEN_MS = 300_000  # how exact "last seen" is kept


def create(
    session: Session,
    user_id: str,
    way: str,
    now: int,
    address: str = "",
    agent: str = "",
    id_token: str | None = None,
) -> tuple[str, str]:
    """(the row's id, the cookie's text). `way` = "password" or "oidc"; `id_token` sealed."""
    token = secrets.token_urlsafe(32)
    row = WebSession(
        sha256=digest(token),
        user_id=user_id,
        way=way,
        created_at=now,
        seen_at=now,
        address=address[:64],
        agent=agent[:300],
        id_token=id_token,
    )
    session.add(row)
    session.flush()
    return row.id, token


def find(session: Session, token: str, now: int, idle_ms: int, most_ms: int) -> tuple[WebSession, User] | None:
    """A session that goes on, and its enabled person. One statement."""
    row = session.execute(
        select(WebSession, User)
        .join(User, User.id == WebSession.user_id)
        .where(WebSession.sha256 == digest(token), _alive(now, idle_ms, most_ms), User.disabled_at.is_(None))
    ).one_or_none()
    return (row[0], row[1]) if row is not None else None


def id_token(session: Session, session_id: str) -> str | None:
    """The provider's token of a session that it signed in, sealed."""
    return session.scalar(select(WebSession.id_token).where(WebSession.id == session_id))


def seen(session: Session, session_id: str, now: int) -> None:
    session.execute(update(WebSession).where(WebSession.id == session_id).values(seen_at=now))


def end(session: Session, session_id: str, now: int, user_id: str | None = None) -> bool:
    """Ends one (of this person, where named); False where there is none that goes on."""
    statement = update(WebSession).where(WebSession.id == session_id, WebSession.ended_at.is_(None))
    if user_id is not None:
        statement = statement.where(WebSession.user_id == user_id)
    return changed(session, statement.values(ended_at=now, id_token=None)) == 1


def end_all(session: Session, user_id: str, now: int, besides: str = "") -> int:
    """Ends every session of a person but this one; how many that were."""
    statement = update(WebSession).where(
        WebSession.user_id == user_id, WebSession.ended_at.is_(None), WebSession.id != besides
    )
    return changed(session, statement.values(ended_at=now, id_token=None))


def of_person(session: Session, user_id: str, now: int, idle_ms: int, most_ms: int) -> list[WebSession]:
    """Those that go on, the newest first."""
    query = select(WebSession).where(WebSession.user_id == user_id, _alive(now, idle_ms, most_ms))
    return list(session.scalars(query.order_by(WebSession.created_at.desc(), WebSession.id.desc()).limit(1000)))


def _alive(now: int, idle_ms: int, most_ms: int) -> ColumnElement[bool]:
    return and_(
        WebSession.ended_at.is_(None), WebSession.seen_at > now - idle_ms, WebSession.created_at > now - most_ms
    )
