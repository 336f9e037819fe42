"""In-app notices of a person. `event_id` makes one notice of an event a person, however often it is reported.

A person who does not want a kind in the product has a row all the same (`shown` false): it says that they were told.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from controller.store.guard import changed
from controller.store.tables import Notification, Outbox

CHUNK = 500


def told(session: Session, event_id: str) -> set[str]:
    """Who has been told of an event."""
    return set(session.scalars(select(Notification.user_id).where(Notification.event_id == event_id)))


def known(session: Session, event_ids: Collection[str]) -> set[str]:
    """Those of these events that anybody has been told of, by whatever way."""
    wanted, found = sorted(event_ids), set[str]()
    for at in range(0, len(wanted), CHUNK):
        some = wanted[at : at + CHUNK]
        for table in (Notification, Outbox):
            found.update(session.scalars(select(table.event_id).where(table.event_id.in_(some)).distinct()))
    return found


def of_kind(session: Session, kind: str, since: int) -> list[Notification]:
    """Every notice of a kind since then, newest first."""
    query = select(Notification).where(Notification.kind == kind, Notification.at >= since)
    return list(session.scalars(query.order_by(Notification.at.desc())))


def page(
    session: Session,
    user_id: str,
    limit: int,
    before_id: str | None = None,
    unread: bool = False,
    kind: str | None = None,
) -> list[Notification]:
    """Newest first."""
    query = select(Notification).where(Notification.user_id == user_id, Notification.shown.is_(True))
    query = query.order_by(Notification.id.desc()).limit(limit)
    if before_id:
        query = query.where(Notification.id < before_id)
    if kind:
        query = query.where(Notification.kind == kind)
    return list(session.scalars(query.where(Notification.read_at.is_(None)) if unread else query))


def unread(session: Session, user_id: str) -> int:
    query = select(func.count()).where(
        Notification.user_id == user_id, Notification.read_at.is_(None), Notification.shown.is_(True)
    )
    return int(session.scalar(query) or 0)


def read(session: Session, user_id: str, ids: list[str] | None, now: int) -> int:
    """Marks notices (None: all) of a person as read."""
    statement = update(Notification).where(Notification.user_id == user_id, Notification.read_at.is_(None))
    if ids is not None:
        statement = statement.where(Notification.id.in_(ids))
    return changed(session, statement.values(read_at=now))


def facts_of(row: Notification) -> dict[str, Any]:
    """What a notice is made of; one of the first version has its sentence alone."""
    return row.facts or {"message": "plain", "text": row.text}
