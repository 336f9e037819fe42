"""What channels did and since when: a row a change (a heartbeat changes nothing), read by the strip chart and the hours.

A state holds from its row's instant to the next row's. What was running while the controller did not hear of a node is
not known: then the phase is `unknown`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.orm import Session

from controller.store import state_days
from controller.store.tables import Channel, ChannelState, Node, Reservation

AWAY = "unknown"  # the node is not connected
GONE = "gone"  # no longer declared


@dataclass(frozen=True, slots=True)
class Doing:
    """What a channel does; `since` (ms) is when its phase began, 0 = not known."""

    phase: str
    model: str | None = None
    preset: str | None = None
    fallback: bool = False
    reason: str = ""
    since: int = 0

    def same(self, known: ChannelState | None) -> bool:
        """Whether the channel's newest row says this already."""
        if known is None:
            return False
        told = (known.phase, known.model, known.preset, known.fallback, known.reason)
        return told == (self.phase, self.model, self.preset, self.fallback, self.reason)


def last(session: Session, channel_ids: Collection[str]) -> dict[str, ChannelState]:
    """The newest row of each of these channels."""
    newest = select(func.max(ChannelState.at)).where(ChannelState.channel_id == Channel.id).scalar_subquery()
    known = select(Channel.id, newest.label("at")).where(Channel.id.in_(channel_ids)).subquery()
    query = select(ChannelState).join(known, and_(known.c.id == ChannelState.channel_id, known.c.at == ChannelState.at))
    return {row.channel_id: row for row in session.scalars(query.order_by(ChannelState.id))}  # of one instant: the last


def record(session: Session, said: Mapping[str, Doing], now: int) -> None:
    """Writes what is news of these channels (by id). A row's instant is when its phase began, where that lies after the
    row before; a channel's rows never go back in time."""
    known = last(session, list(said))
    news = {i: doing for i, doing in said.items() if not doing.same(known.get(i))}
    booked = _concerns(session, list(news), now) if news else {}
    since = now
    for channel_id, doing in news.items():
        row = known.get(channel_id)
        before = row.at if row else 0
        began = before < doing.since <= now and (row is None or row.phase != doing.phase)
        session.add(
            ChannelState(
                channel_id=channel_id,
                at=doing.since if began else max(now, before),
                phase=doing.phase,
                model=doing.model,
                preset=doing.preset,
                fallback=doing.fallback,
                reservation_id=booked.get(channel_id) if doing.phase not in (AWAY, GONE) else None,
                reason=doing.reason,
            )
        )
        since = min(since, doing.since if began else max(now, before))
    if news:
        state_days.forget(session, since)  # what was summed before this was known


def between(session: Session, channel_ids: Collection[str], start: int, end: int) -> dict[str, list[ChannelState]]:
    """Per channel, by time: the state in force at `start`, and every change before `end`."""
    found: dict[str, list[ChannelState]] = {}
    for row in session.scalars(_within(select(ChannelState), list(channel_ids), start, end)):
        found.setdefault(row.channel_id, []).append(row)
    return found


class State(NamedTuple):
    """A row, plain: a year of a fleet has a million."""

    channel_id: str
    at: int
    phase: str
    model: str | None
    preset: str | None
    fallback: bool
    reservation_id: str | None
    reason: str


def stream(session: Session, channel_ids: Collection[str] | None, start: int, end: int) -> Iterator[State]:
    """The same as plain rows by channel and time, never all in memory. None: of every channel."""
    columns = (
        ChannelState.channel_id,
        ChannelState.at,
        ChannelState.phase,
        ChannelState.model,
        ChannelState.preset,
        ChannelState.fallback,
        ChannelState.reservation_id,
        ChannelState.reason,
    )
    chosen: Any = select(*columns)
    query = _within(chosen, channel_ids, start, end)
    for rows in session.execute(query.execution_options(yield_per=5000)).partitions():
        yield from map(State._make, rows)


def names(session: Session) -> dict[str, str]:
    """id -> node/channel of every channel there ever was: history outlives them."""
    rows = session.execute(select(Channel.id, Channel.name, Node.name.label("node")).join(Node))
    return {row.id: f"{row.node}/{row.name}" for row in rows}


def _within(query: Select[Any], channel_ids: Collection[str] | None, start: int, end: int) -> Select[Any]:
    newest = select(func.max(ChannelState.at)).where(ChannelState.channel_id == Channel.id, ChannelState.at < start)
    first = select(
        Channel.id, newest.scalar_subquery().label("at")
    )  # a look into the index a channel, whatever the years
    if channel_ids is not None:
        first = first.where(Channel.id.in_(channel_ids))
    known = first.subquery()
    return (
        query.join(known, known.c.id == ChannelState.channel_id)
        .where(ChannelState.at < end, ChannelState.at >= func.coalesce(known.c.at, start))
        .order_by(ChannelState.channel_id, ChannelState.at, ChannelState.id)
    )


def _concerns(session: Session, channel_ids: list[str], now: int) -> dict[str, str]:
    """The booking that a channel works for: the one that runs, else the one that is being prepared."""
    found: dict[str, str] = {}
    rows = session.execute(
        select(Reservation.channel_id, Reservation.id)
        .where(
            Reservation.channel_id.in_(channel_ids),
            Reservation.status == "approved",
            Reservation.ends_at > now,
            or_(Reservation.starts_at <= now, Reservation.committed),
        )
        .order_by(Reservation.starts_at)
    )
    for channel_id, reservation_id in rows:
        found.setdefault(channel_id, reservation_id)
    return found
