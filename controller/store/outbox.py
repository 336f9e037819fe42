"""Messages on their way outside: written with the change they tell of, claimed by one sender at a time, sent once.

A claim is a conditional UPDATE: it moves `due_at` on by the lease and counts the attempt, and meets the row only as it
was read. Whoever claims and then dies leaves the row to come due again; whoever comes back late finds another count of
attempts, and marks nothing. So no two controllers send a message at the same time, and none is forgotten; a crash
between sending and marking sends it again, with the same id, by which receivers drop doubles.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from controller.store.guard import changed
from controller.store.tables import NotificationTarget, Outbox, User

STATES = ("waiting", "sent", "failed", "dropped")
LEASE_MS = 180_000  # longer than any single sending takes, all time-outs together
Place = tuple[str, str]  # (way, address)


def known(session: Session, event_id: str) -> set[Place]:
    """Where messages of an event go already."""
    query = select(Outbox.way, Outbox.address).where(Outbox.event_id == event_id)
    return {(way, address) for way, address in session.execute(query)}


def due(session: Session, now: int, limit: int) -> list[Outbox]:
    """Those to be sent now, oldest first."""
    query = select(Outbox).where(Outbox.state == "waiting", Outbox.due_at <= now)
    return list(session.scalars(query.order_by(Outbox.due_at, Outbox.id).limit(limit)))


def next_due(session: Session) -> int | None:
    """When the next one is to be sent."""
    return session.scalar(select(func.min(Outbox.due_at)).where(Outbox.state == "waiting"))


def claim(session: Session, row: Outbox, now: int) -> int | None:
    """The number of this attempt, or None where somebody else was faster."""
    attempt = row.attempts + 1
    statement = (
        update(Outbox)
        .where(
            Outbox.id == row.id,
            Outbox.state == "waiting",
            Outbox.attempts == row.attempts,
            Outbox.due_at == row.due_at,
        )
        .values(attempts=attempt, due_at=now + LEASE_MS)
        .execution_options(synchronize_session=False)
    )
    return attempt if changed(session, statement) else None


def settle(session: Session, row_id: str, attempt: int, **values: Any) -> bool:
    """Writes what became of an attempt, unless another one has been begun since."""
    statement = (
        update(Outbox)
        .where(Outbox.id == row_id, Outbox.state == "waiting", Outbox.attempts == attempt)
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return bool(changed(session, statement))


def again(session: Session, row_id: str, now: int) -> bool:
    """Sends a message anew that was given up or dropped."""
    statement = (
        update(Outbox)
        .where(Outbox.id == row_id, Outbox.state.in_(("failed", "dropped")))
        .values(state="waiting", attempts=0, due_at=now, error="")
    )
    return bool(changed(session, statement))


def page(session: Session, limit: int, before_id: str | None = None, state: str | None = None) -> list[Any]:
    """(message, its person's name, its target's name), newest first."""
    query = (
        select(Outbox, User.name, NotificationTarget.name)
        .outerjoin(User, User.id == Outbox.user_id)
        .outerjoin(NotificationTarget, NotificationTarget.id == Outbox.address)
        .order_by(Outbox.id.desc())
        .limit(limit)
    )
    if before_id:
        query = query.where(Outbox.id < before_id)
    if state:
        query = query.where(Outbox.state == state)
    return list(session.execute(query).all())


def counts(session: Session) -> dict[str, int]:
    """How many wait, and how many were given up."""
    query = select(Outbox.state, func.count()).where(Outbox.state.in_(("waiting", "failed"))).group_by(Outbox.state)
    found = {row[0]: row[1] for row in session.execute(query)}
    return {"waiting": found.get("waiting", 0), "failed": found.get("failed", 0)}


def oldest_waiting(session: Session) -> int | None:
    return session.scalar(select(func.min(Outbox.created_at)).where(Outbox.state == "waiting"))


def troubled(session: Session, since: int) -> list[Any]:
    """(way, address, error, since, messages, given up): what has failed at least once and is not through, or was given
    up after `since`. The newest first."""
    failed = or_(Outbox.state == "waiting", Outbox.due_at >= since)
    query = (
        select(
            Outbox.way, Outbox.address, func.max(Outbox.error), func.min(Outbox.created_at), func.count(), func.max(Outbox.state)
        )
        .where(Outbox.state.in_(("waiting", "failed")), Outbox.error != "", failed)
        .group_by(Outbox.way, Outbox.address)
        .order_by(func.max(Outbox.created_at).desc())
        .limit(50)
    )  # fmt: skip
    return list(session.execute(query).all())


def last_of(session: Session, addresses: Collection[str]) -> dict[str, Outbox]:
    """The newest message to each of these targets."""
    newest = select(func.max(Outbox.id)).where(Outbox.address.in_(list(addresses))).group_by(Outbox.address)
    return {row.address: row for row in session.scalars(select(Outbox).where(Outbox.id.in_(newest)))}
