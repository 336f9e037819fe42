"""Webhooks and chat services that messages go to: a person's own, or everybody's (`user_id` NULL)."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from controller.store.tables import NotificationTarget


def get(session: Session, target_id: str) -> NotificationTarget | None:
    return session.get(NotificationTarget, target_id)


def of(session: Session, user_id: str | None) -> list[NotificationTarget]:
    """A person's (None: everybody's), oldest first."""
    mine = NotificationTarget.user_id.is_(None) if user_id is None else NotificationTarget.user_id == user_id
    return list(session.scalars(select(NotificationTarget).where(mine).order_by(NotificationTarget.id)))


def count(session: Session, user_id: str | None) -> int:
    mine = NotificationTarget.user_id.is_(None) if user_id is None else NotificationTarget.user_id == user_id
    return int(session.scalar(select(func.count()).select_from(NotificationTarget).where(mine)) or 0)


def listening(session: Session, user_ids: Collection[str], shared: bool) -> list[NotificationTarget]:
    """Those in use of these people, and everybody's where `shared`."""
    whose = [NotificationTarget.user_id.in_(list(user_ids))]
    if shared:
        whose.append(NotificationTarget.user_id.is_(None))
    query = select(NotificationTarget).where(NotificationTarget.disabled_at.is_(None), or_(*whose))
    return list(session.scalars(query.order_by(NotificationTarget.id)))
