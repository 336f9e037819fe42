"""In-app notices of a person. `event_id` makes one notice of an event a person, however often it is reported."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from controller.store.guard import changed
from controller.store.tables import Notification


def add(
    session: Session, event_id: str, user_ids: Iterable[str], kind: str, subject: str, text: str, now: int
) -> list[str]:
    """Writes the notices that are not there yet; answers whom they are for."""
    wanted = list(dict.fromkeys(u for u in user_ids if u))
    told = set(session.scalars(select(Notification.user_id).where(Notification.event_id == event_id)))
    fresh = [u for u in wanted if u not in told]
    session.add_all(
        Notification(event_id=event_id, user_id=u, kind=kind, subject=subject, text=text, at=now) for u in fresh
    )
    return fresh


def page(
    session: Session, user_id: str, limit: int, before_id: str | None = None, unread: bool = False
) -> list[Notification]:
    """Newest first."""
    query = select(Notification).where(Notification.user_id == user_id).order_by(Notification.id.desc()).limit(limit)
    if before_id:
        query = query.where(Notification.id < before_id)
    return list(session.scalars(query.where(Notification.read_at.is_(None)) if unread else query))


def unread(session: Session, user_id: str) -> int:
    query = select(func.count()).where(Notification.user_id == user_id, Notification.read_at.is_(None))
    return int(session.scalar(query) or 0)


def read(session: Session, user_id: str, ids: list[str] | None, now: int) -> int:
    """Marks notices (None: all) of a person as read."""
    statement = update(Notification).where(Notification.user_id == user_id, Notification.read_at.is_(None))
    if ids is not None:
        statement = statement.where(Notification.id.in_(ids))
    return changed(session, statement.values(read_at=now))
