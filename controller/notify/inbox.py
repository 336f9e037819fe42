"""What happens to bookings, channels and nodes, as events that people are told of (tell.py writes them).

Called in the transaction of the change itself. What comes due by the clock alone is in rounds.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.notify.tell import Event, for_participants, tell
from controller.store import channels, reservations, users
from controller.store.tables import Channel, Reservation

FOR_EVER = 1 << 62
LEFT_BEHIND_MS = 6 * 3_600_000  # so long after its end a bare card's processes are taken to be its holder's
# The act of somebody else -> the kind under which the holder is told.
KINDS = {"edit": "changed", "ended_early": "ended", "shortened": "changed"}


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
    @property
    def category(self) -> str: ...
    @property
    def reason(self) -> str: ...


def tell_event(session: Session, event: NodeEvent) -> None:
    """A node's event (failed, recovered, blocked): told once to the administrators and the holder it concerns.

    Where the node names no reservation, the one that runs on the channel counts.
    """
    booking = reservations.get(session, event.reservation_id) if event.reservation_id else None
    if booking is None and event.channel_id:
        booking = reservations.running(session, event.channel_id, event.at)
    facts = booking_facts(session, booking) if booking else {}
    facts |= {"channel": event.subject, "message": event.kind}
    model = getattr(event, "model", "") or ""
    if model:
        facts |= {"model": model, "preset": getattr(event, "preset", None)}
    channel = session.get(Channel, event.channel_id) if event.channel_id else None
    if event.kind == "failed":
        facts |= {
            "category": event.category,
            "reason": event.reason or event.text,
            "detail": getattr(event, "detail", "") or "",
            "default": _stands_in(channel, booking, facts.get("model")),
        }
    elif event.kind == "blocked":
        facts |= {"text": event.text, "left_by": _left_by(session, channel, event.at)}
    if booking is not None:
        facts["about_holder"] = True
    people = [*([booking.holder_id] if booking else []), *users.administrators(session)]
    made = Event(event.id, event.kind, event.subject, event.at, facts)
    tell(session, made, people, shared=True)
    if booking is not None:
        tell(session, for_participants(made), [i for i in booking.participants if i not in people])


def place_lost(session: Session, channel: Channel, full_name: str, why: str, now: int) -> list[str]:
    """A channel is no longer there (`why` in words): everybody who holds a booking on it is told, once a loss."""
    told: list[str] = []
    for row in reservations.holding_in(session, [channel.id], now, FOR_EVER):
        running = reservations.is_running(row, now)
        facts = booking_facts(session, row) | {"channel": full_name, "text": why, "running": running}
        event = Event(f"gone:{channel.id}:{channel.gone_at}:{row.id}", "channel_gone", row.id, now, facts)
        told += tell_booking(session, event, row, shared=not told)
    return told


def acted_for(
    session: Session,
    row: Reservation,
    actor_id: str,
    act: str,
    reason: str,
    now: int,
    before: Mapping[str, Any] | None = None,
) -> list[str]:
    """Somebody did something to a booking: its holder is told what, by whom and why, and whoever shares it, where they
    have not done it themselves.

    `act` is the act or the kind of notice; `before` is the booking as it was (refusals.record), so that a change can say
    what has changed."""
    if row.holder_id == actor_id and not row.participants and not (before or {}).get("participants"):
        return []
    kind = KINDS.get(act, act)
    facts = booking_facts(session, row) | {
        "by": users.names(session, [actor_id]).get(actor_id),
        "reason": reason,
        "pending": row.status == "pending",
        "before": _changed(session, before, row) if before else {},
    }
    event = Event(f"{kind}:{row.id}:{row.version}", kind, row.id, now, facts)
    told = _sharers_told(session, row, actor_id, event, before)
    if row.holder_id == actor_id:
        return told
    if before and before.get("holder_id") not in (None, row.holder_id):
        event = replace(event, facts={**facts, "message": "received"})
    return told + tell(session, event, [row.holder_id])


def _sharers_told(
    session: Session, row: Reservation, actor_id: str, event: Event, before: Mapping[str, Any] | None
) -> list[str]:
    """Participants: those who have become it, those who are it no longer, and the others of a change that they notice."""
    was = set((before or {}).get("participants") or ()) - {actor_id, row.holder_id}
    now_are = set(row.participants) - {actor_id, row.holder_id}
    if event.kind == "booked":
        was = set()
    elif before is None:
        was = now_are
    told = []
    for people, message in ((now_are - was, "participant"), (was - now_are, "participant_no_longer")):
        facts = {**event.facts, "message": message, "before": {}}
        own = Event(f"{message}:{row.id}:{row.version}", "participant", row.id, event.at, facts)
        told += tell(session, for_participants(own), sorted(people))
    kept = before is not None and (before.get("status"), before.get("holder_id")) == (row.status, row.holder_id)
    if event.kind == "changed" and kept and not event.facts["before"]:
        return told  # its note, or who else shares it
    return told + tell(session, for_participants(event), sorted(was & now_are))


def tell_booking(session: Session, event: Event, row: Reservation, *, shared: bool = False) -> list[str]:
    """Tells the holder of a booking, and those who share it in their words."""
    told = tell(session, event, [row.holder_id], shared=shared)
    return told + tell(session, for_participants(event), [i for i in row.participants if i != row.holder_id])


def given(session: Session, row: Reservation, old_holder: str, actor_id: str, reason: str, now: int) -> list[str]:
    """A booking has another holder now: the one who had it is told."""
    if old_holder == actor_id:
        return []
    facts = booking_facts(session, row) | {
        "message": "given",
        "by": users.names(session, [actor_id]).get(actor_id),
        "reason": reason,
    }
    return tell(session, Event(f"given:{row.id}:{row.version}", "changed", row.id, now, facts), [old_holder])


def stands_again(session: Session, row: Reservation, actor_id: str, reason: str, now: int) -> list[str]:
    """A cancellation was taken back: whoever was told of it, its holder and those who share it."""
    facts = booking_facts(session, row) | {
        "message": "uncancelled",
        "by": users.names(session, [actor_id]).get(actor_id),
        "reason": reason.strip(),
        "pending": row.status == "pending",
    }
    event = Event(f"uncancelled:{row.id}:{row.version}", "changed", row.id, now, facts)
    told = tell(session, event, [row.holder_id] if row.holder_id != actor_id else [])
    return told + tell(
        session, for_participants(event), [i for i in row.participants if i not in (row.holder_id, actor_id)]
    )


def expired(session: Session, reservation_id: str, now: int) -> list[str]:
    """Nobody has decided a request before its window was over: who asked is told."""
    row = reservations.get(session, reservation_id)
    if row is None:
        return []
    event = Event(f"expired:{row.id}", "expired", row.id, now, booking_facts(session, row))
    return tell_booking(session, event, row)


def booking_facts(session: Session, row: Reservation) -> dict[str, Any]:
    """What every message about a booking says."""
    return {
        "reservation_id": row.id,
        "channel": where(session, row),
        "booking_kind": row.kind,
        "model": row.model,
        "preset": row.preset,
        "starts_at": row.starts_at,
        "ends_at": row.ends_at,
        "holder": users.names(session, [row.holder_id]).get(row.holder_id),
    }


def offered(others: list[dict[str, Any]] | None) -> dict[str, Any]:
    """What a message says of other channels; None: nobody has looked for them."""
    return {"unsought": True} if others is None else {"others": others, "nothing_else": not others}


def where(session: Session, row: Reservation) -> str:
    """`node/channel` of a booking."""
    return channels.full_names(session, {row.channel_id}).get(row.channel_id, "a channel that is gone")


def _changed(session: Session, before: Mapping[str, Any], row: Reservation) -> dict[str, Any]:
    """What a booking was, as far as it is something else now."""
    facts: dict[str, Any] = {}
    if before.get("channel_id") not in (None, row.channel_id):
        facts["channel"] = channels.full_names(session, {before["channel_id"]}).get(before["channel_id"])
    if (before.get("model"), before.get("preset")) != (row.model, row.preset):
        facts |= {"model": before.get("model"), "preset": before.get("preset")}
    if (before.get("starts_at"), before.get("ends_at")) != (row.starts_at, row.ends_at):
        facts |= {"starts_at": before.get("starts_at"), "ends_at": before.get("ends_at")}
    return facts


def _stands_in(channel: Channel | None, booking: Reservation | None, model: Any) -> str | None:
    """The default that answers in a booked model's place while that waits for its next try."""
    if channel is None or booking is None or not channel.default_model or channel.default_model == model:
        return None
    return f"{channel.default_model}:{channel.default_preset}" if channel.default_preset else channel.default_model


def _left_by(session: Session, channel: Channel | None, at: int) -> str | None:
    """The holder of the bare card that was booked on the channel last, if it is over since a short time."""
    if channel is None:
        return None
    last = session.scalars(
        select(Reservation)
        .where(
            Reservation.channel_id == channel.id,
            Reservation.approved_at.is_not(None),
            Reservation.starts_at <= at,
            Reservation.status.in_(("approved", "finished", "ended_early")),
        )
        .order_by(Reservation.starts_at.desc())
        .limit(2)
    ).all()
    for row in last:
        over = row.ended_at or row.ends_at
        if row.kind == "exclusive" and at - LEFT_BEHIND_MS < over <= at:
            return users.names(session, [row.holder_id]).get(row.holder_id)
    return None
