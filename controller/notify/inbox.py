"""What people are told inside the product. Written in the transaction of the change itself, once an event a person."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sqlalchemy.orm import Session

from controller.store import channels, notifications, reservations, users
from controller.store.tables import Channel, Reservation

FOR_EVER = 1 << 62


def notify(
    session: Session, event_id: str, user_ids: Iterable[str], kind: str, subject: str, text: str, now: int
) -> list[str]:
    """One notice of `event_id` for each of `user_ids` that has none yet; answers who got one."""
    return notifications.add(session, event_id, user_ids, kind, subject, text, now)


class NodeEvent(Protocol):
    """What a node reports (controller/fleet/records.py); `subject` is "node/channel"."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def channel_id(self) -> str | None: ...
    @property
    def subject(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def at(self) -> int: ...
    @property
    def reservation_id(self) -> str: ...


def tell_event(session: Session, event: NodeEvent) -> None:
    """A node's event (failed, recovered, blocked): told once to the administrators and the holder it concerns.

    Where the node names no reservation, the one that runs on the channel counts.
    """
    holder = reservations.get(session, event.reservation_id) if event.reservation_id else None
    if holder is None and event.channel_id:
        holder = reservations.running(session, event.channel_id, event.at)
    people = [*([holder.holder_id] if holder else []), *users.administrators(session)]
    notify(session, event.id, people, event.kind, event.subject, event.text, event.at)


def place_lost(session: Session, channel: Channel, full_name: str, why: str, now: int) -> list[str]:
    """A channel is no longer there (`why` in words): everybody who holds a booking on it is told, once a loss."""
    told = []
    for row in reservations.holding_in(session, [channel.id], now, FOR_EVER):
        running = reservations.is_running(row, now)
        rest = "Your booking there ends with it." if running else "Your booking there is kept, but cannot be served."
        text = f"{why} {rest} Other channels may be free: book there, and cancel this one."
        event = f"gone:{channel.id}:{channel.gone_at}:{row.id}"
        told += notify(session, event, [row.holder_id], "channel_gone", row.id, f"{full_name}: {text}", now)
    return told


def acted_for(session: Session, row: Reservation, actor_id: str, kind: str, text: str, now: int) -> list[str]:
    """Somebody else changed a booking: its holder is told what, by whom and why."""
    if row.holder_id == actor_id:
        return []
    return notify(session, f"{kind}:{row.id}:{row.version}", [row.holder_id], kind, row.id, text, now)


def requested(session: Session, row: Reservation, text: str, now: int) -> list[str]:
    """A booking waits for approval: approvers and administrators are told."""
    people = users.deciders(session)
    return notify(session, f"requested:{row.id}:{row.version}", people, "requested", row.id, text, now)


def where(session: Session, row: Reservation) -> str:
    """`node/channel` of a booking."""
    return channels.full_names(session, {row.channel_id}).get(row.channel_id, "a channel that is gone")
