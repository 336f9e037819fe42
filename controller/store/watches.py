"""Who waits for a free slot, for what and until when. A watch is told once: `told` is a conditional update."""

from __future__ import annotations

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from controller.store.guard import changed
from controller.store.tables import SlotWatch


def get(session: Session, watch_id: str) -> SlotWatch | None:
    return session.get(SlotWatch, watch_id)


def page(session: Session, user_id: str, limit: int, before_id: str | None = None) -> list[SlotWatch]:
    """A person's, newest first."""
    query = select(SlotWatch).where(SlotWatch.user_id == user_id).order_by(SlotWatch.id.desc()).limit(limit)
    return list(session.scalars(query.where(SlotWatch.id < before_id) if before_id else query))


def open_ones(session: Session, now: int) -> list[SlotWatch]:
    """Those that wait, in the order in which they were asked for."""
    query = select(SlotWatch).where(
        SlotWatch.told_at.is_(None), SlotWatch.cancelled_at.is_(None), SlotWatch.not_after > now
    )
    return list(session.scalars(query.order_by(SlotWatch.id)))


def waiting(session: Session, user_id: str, now: int) -> int:
    """How many of a person's wait."""
    query = select(func.count()).where(
        SlotWatch.user_id == user_id,
        SlotWatch.told_at.is_(None),
        SlotWatch.cancelled_at.is_(None),
        SlotWatch.not_after > now,
    )
    return int(session.scalar(query) or 0)


def tell(session: Session, watch_id: str, now: int) -> bool:
    """Marks a watch as told; False where it was told or given up before."""
    statement = (
        update(SlotWatch)
        .where(SlotWatch.id == watch_id, SlotWatch.told_at.is_(None), SlotWatch.cancelled_at.is_(None))
        .values(told_at=now)
    )
    return bool(changed(session, statement))


def cancel(session: Session, watch_id: str, now: int) -> bool:
    """Ends the waiting; False where it was over before."""
    statement = (
        update(SlotWatch)
        .where(SlotWatch.id == watch_id, SlotWatch.told_at.is_(None), SlotWatch.cancelled_at.is_(None))
        .values(cancelled_at=now)
    )
    return bool(changed(session, statement))


def state(row: SlotWatch, now: int) -> str:
    """waiting, told, cancelled, or over: nothing became free in time."""
    if row.told_at is not None:
        return "told"
    if row.cancelled_at is not None:
        return "cancelled"
    return "waiting" if row.not_after > now else "over"
