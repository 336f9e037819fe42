"""The windows that bookings really held: what hours are counted from."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from controller.spans import Booked
from controller.store.tables import RAN, Reservation


def held(
    session: Session,
    start: int,
    end: int,
    *,
    channel_ids: Collection[str] | None = None,
    holder_id: str | None = None,
) -> dict[str, list[Booked]]:
    """By channel and start, what overlaps [start, end): from the start, or the approval where that came later, to the
    real end."""
    row = Reservation
    begin = case((row.approved_at > row.starts_at, row.approved_at), else_=row.starts_at)
    over = func.coalesce(case((row.ended_at < row.ends_at, row.ended_at)), row.ends_at)
    query = (
        select(row.id, row.channel_id, begin, over, row.holder_id, row.kind, row.maintenance)
        .where(row.status.in_(RAN), row.starts_at < end, row.ends_at > start, begin < end, over > start, begin < over)
        .order_by(row.channel_id, row.starts_at)
    )
    if channel_ids is not None:
        query = query.where(row.channel_id.in_(channel_ids))
    if holder_id is not None:
        query = query.where(row.holder_id == holder_id)
    found: dict[str, list[Booked]] = {}
    for i, channel_id, first, last, holder, kind, maintenance in session.execute(query):
        booked = Booked(i, channel_id, first, last, holder, exclusive=kind == "exclusive" and not maintenance)
        found.setdefault(channel_id, []).append(booked)
    return found


def starts(session: Session, ids: Collection[str]) -> dict[str, int]:
    """id -> start of these bookings."""
    rows = session.execute(select(Reservation.id, Reservation.starts_at).where(Reservation.id.in_(list(ids))))
    return {row.id: row.starts_at for row in rows}
