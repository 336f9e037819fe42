"""The audit trail: who did what to what, before and after. Rows are never rewritten."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.store.tables import Audit


def add(
    session: Session,
    actor_id: str | None,
    action: str,
    subject: str,
    now: int,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    reason: str = "",
) -> None:
    """One row, in the transaction of the change itself. Never put a secret into `before` or `after`."""
    session.add(
        Audit(at=now, actor_id=actor_id, action=action, subject=subject, before=before, after=after, reason=reason)
    )


def page(
    session: Session, limit: int, before_id: str | None = None, action: str | None = None, subject: str | None = None
) -> list[Audit]:
    """Newest first; `before_id` is where the last page ended."""
    query = select(Audit).order_by(Audit.id.desc()).limit(limit)
    if before_id:
        query = query.where(Audit.id < before_id)
    if action:
        query = query.where(Audit.action == action)
    if subject:
        query = query.where(Audit.subject == subject)
    return list(session.scalars(query))
