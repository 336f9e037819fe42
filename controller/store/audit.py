"""The audit trail: who did what to what, before and after. Rows are never rewritten."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.store.tables import Audit

SECRETS = frozenset(("password", "current_password", "password_hash", "secret", "sha256", "token", "api_key", "key"))
HIDDEN = "(not kept)"
SYSTEM = "system"  # in place of an actor's id: what SlotServe did by itself


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
    """One row, in the transaction of the change itself. What is called a secret is not kept."""
    session.add(
        Audit(
            at=now,
            actor_id=actor_id,
            action=action,
            subject=subject,
            before=_open(before),
            after=_open(after),
            reason=reason,
        )
    )


def _open(facts: Any) -> Any:
    """Without what nobody may read again."""
    if isinstance(facts, dict):
        return {n: HIDDEN if n in SECRETS and v is not None else _open(v) for n, v in facts.items()}
    return [_open(v) for v in facts] if isinstance(facts, list) else facts


def page(
    session: Session,
    limit: int,
    before_id: str | None = None,
    action: str | None = None,
    subject: str | None = None,
    actor_id: str | None = None,
    when: tuple[int | None, int | None] = (None, None),
) -> list[Audit]:
    """Newest first; `before_id` is where the last page ended. An `action` that ends in a dot is a beginning; `when` is
    [start, end), None = open."""
    query = select(Audit).order_by(Audit.id.desc()).limit(limit)
    if before_id:
        query = query.where(Audit.id < before_id)
    if action:
        begins = Audit.action.startswith(action, autoescape=True)
        query = query.where(begins if action.endswith(".") else Audit.action == action)
    if actor_id:
        query = query.where(Audit.actor_id.is_(None) if actor_id == SYSTEM else Audit.actor_id == actor_id)
    if when[0] is not None:
        query = query.where(Audit.at >= when[0])
    if when[1] is not None:
        query = query.where(Audit.at < when[1])
    if subject:
        query = query.where(Audit.subject == subject)
    return list(session.scalars(query))
