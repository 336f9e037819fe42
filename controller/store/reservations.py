"""Reservations: reading by window and page, and guarded changes of state. The overlap rule is the database's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cache, partial
from typing import Any, NamedTuple, cast

from sqlalchemy import Insert, Table, and_, func, or_, select, update
from sqlalchemy import insert as sql_insert
from sqlalchemy.orm import Session

from controller.errors import Conflict
from controller.said import say
from controller.store.guard import changed
from controller.store.tables import HOLDING, RAN, Reservation, holding

STATUSES = ("pending", "approved", "rejected", "expired", "cancelled", "ended_early", "finished")


def get(session: Session, reservation_id: str) -> Reservation | None:
    return session.get(Reservation, reservation_id)


def insert(session: Session, row: Reservation) -> None:
    """Writes a new booking at once: an INSERT and nothing else. The row stays outside the session, with its defaults
    filled in. Raises IntegrityError when the database refuses an overlap."""
    values: dict[str, Any] = {}
    for name, default in _defaults():
        value = getattr(row, name)
        if value is None and default is not None:
            value = default()
            setattr(row, name, value)
        values[name] = value
    session.connection().execute(_insert(), values)


@cache
def _defaults() -> list[tuple[str, Callable[[], Any] | None]]:
    """What a column is filled with where nothing was said."""
    found: list[tuple[str, Callable[[], Any] | None]] = []
    for column in Reservation.__table__.c:
        said: Any = column.default
        made = None if said is None else partial(said.arg, None) if said.is_callable else partial(copy, said.arg)
        found.append((column.name, made))
    return found


@cache
def _insert() -> Insert:
    return sql_insert(cast("Table", Reservation.__table__))


def running(session: Session, channel_id: str, now: int) -> Reservation | None:
    """The reservation in force on a channel."""
    return session.scalars(
        select(Reservation).where(
            Reservation.channel_id == channel_id,
            Reservation.status == "approved",
            Reservation.starts_at <= now,
            Reservation.ends_at > now,
        )
    ).first()


def is_running(row: Reservation, now: int) -> bool:
    return row.status == "approved" and row.starts_at <= now < row.ends_at


def status_at(row: Reservation, now: int) -> str:
    """The status as it is at `now`, also in the moment before the planner has written down that the window is over."""
    return status_of(row.status, row.ends_at, now)


def status_of(written: str, end: int, now: int) -> str:
    """The same of a booking that is `written` so and ends then."""
    return {"approved": "finished", "pending": "expired"}.get(written, written) if end <= now else written


def holding_in(
    session: Session, channel_ids: Iterable[str], start: int, end: int, besides: str | None = None
) -> list[Reservation]:
    """Pending and approved ones that overlap [start, end), by channel and start."""
    query = (
        select(Reservation)
        .where(
            Reservation.channel_id.in_(list(channel_ids)),
            holding(Reservation.status),
            Reservation.starts_at < end,
            Reservation.ends_at > start,
        )
        .order_by(Reservation.channel_id, Reservation.starts_at)
    )
    return list(session.scalars(query.where(Reservation.id != besides) if besides else query))


def page(
    session: Session,
    now: int,
    limit: int,
    after: tuple[int, str] | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    channel_id: str | None = None,
    holder_id: str | None = None,
    status: str | None = None,
    series_id: str | None = None,
) -> list[Reservation]:
    """By start; those that overlap [start, end) where given. `status` "running" is known as well as the stored ones.
    Plain rows, only to be read: an object a row would take longer than all the rest of a long list."""
    query = select(*Reservation.__table__.c).order_by(Reservation.starts_at, Reservation.id).limit(limit)
    if after is not None:
        query = query.where(
            or_(
                Reservation.starts_at > after[0],
                and_(Reservation.starts_at == after[0], Reservation.id > after[1]),
            )
        )
    if start is not None:
        query = query.where(Reservation.ends_at > start)
    if end is not None:
        query = query.where(Reservation.starts_at < end)
    if channel_id is not None:
        query = query.where(Reservation.channel_id == channel_id)
    if holder_id is not None:
        query = query.where(Reservation.holder_id == holder_id)
    if series_id is not None:
        query = query.where(Reservation.series_id == series_id)
    if status is not None:
        query = query.where(_with_status(status, now))
    return cast("list[Reservation]", session.execute(query).all())


def of_person(session: Session, user_id: str, now: int) -> list[Reservation]:
    """What a person holds from now on, by start."""
    return list(
        session.scalars(
            select(Reservation)
            .where(Reservation.holder_id == user_id, holding(Reservation.status), Reservation.ends_at > now)
            .order_by(Reservation.starts_at)
        )
    )


def of_series(session: Session, series_id: str) -> list[Reservation]:
    """The bookings of a repeated one, by start."""
    query = select(Reservation).where(Reservation.series_id == series_id).order_by(Reservation.starts_at)
    return list(session.scalars(query))


class Had(NamedTuple):
    """What counts of somebody's hours: used ones up to where they were ended. `holds`: pending or approved."""

    id: str
    channel_id: str
    holder_id: str
    start: int
    end: int
    holds: bool


def of_people(
    session: Session, user_ids: Iterable[str], since: int, channel_id: str | None = None, besides: str | None = None
) -> dict[str, list[Had]]:
    """What people have or had that ends after `since`, by person; maintenance does not count. One statement."""
    row = Reservation
    end = func.coalesce(row.ended_at, row.ends_at)
    query = select(row.id, row.channel_id, row.holder_id, row.starts_at, end, row.status).where(
        row.holder_id.in_(list(user_ids)),
        row.status.in_(("pending", *RAN)),
        row.ends_at > since,
        row.maintenance.is_(False),
        row.id != (besides or ""),
    )
    if channel_id is not None:
        query = query.where(row.channel_id == channel_id)
    found: dict[str, list[Had]] = {}
    for booking, channel, person, start, stop, status in session.execute(query):
        if stop > start:
            had = Had(booking, channel, person, start, stop, status in HOLDING)
            found.setdefault(had.holder_id, []).append(had)
    return found


def change(session: Session, row: Reservation, statuses: Sequence[str], values: dict[str, Any], now: int) -> None:
    """Writes `values` if the row is still as it was read.

    Raises Conflict when somebody was faster, IntegrityError when the database refuses an overlap.
    """
    statement = (
        update(Reservation)
        .where(Reservation.id == row.id, Reservation.version == row.version, Reservation.status.in_(statuses))
        .values(version=row.version + 1, changed_at=now, **values)
        .execution_options(synchronize_session=False)
    )
    if changed(session, statement) != 1:
        raise Conflict(say("the booking was changed meanwhile; look at it again"), details={"id": row.id})
    session.refresh(row)


def _with_status(status: str, now: int) -> Any:
    live, over = Reservation.ends_at > now, Reservation.ends_at <= now
    if status == "running":
        return and_(Reservation.status == "approved", Reservation.starts_at <= now, live)
    if status in HOLDING:
        return and_(Reservation.status == status, live)
    late = {"finished": "approved", "expired": "pending"}.get(status)
    if late is not None:
        return or_(Reservation.status == status, and_(Reservation.status == late, over))
    return Reservation.status == status
