"""Whether a message is still worth sending, looked at right before each try: the world may have gone on since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.notify.kinds import ways
from controller.store import reservations
from controller.store.tables import HOLDING, Channel, Node, Notification, NotificationTarget, Outbox, Reservation, User

TOO_OLD_MS = 3 * 86_400_000
AT_THE_END_MS = 3_600_000  # so long after its end a bare card's processes are news
Facts = Mapping[str, Any]


def pointless(session: Session, row: Outbox, now: int) -> str:
    """Why a message is not sent any more, in words; empty: it is."""
    if row.kind == "test":
        return ""
    if now - row.created_at > TOO_OLD_MS:
        return "older than three days"
    facts: Facts = (row.payload or {}).get("facts") or {}
    look = _LOOKS.get(row.kind)
    return _nobody(session, row) or (look and (_left(session, row, facts) or look(session, row, facts, now))) or ""


def _nobody(session: Session, row: Outbox) -> str:
    """Whether whom it is for still wants it."""
    user = session.get(User, row.user_id) if row.user_id else None
    if row.user_id and (user is None or user.disabled_at is not None):
        return "the account is disabled"
    if user is not None and row.way not in ways(user.notify, row.kind):
        return "not wanted any more"
    if row.way == "email":
        return "" if user is not None and user.email else "no e-mail address"
    target = session.get(NotificationTarget, row.address)
    return "" if target is not None and target.disabled_at is None else "the target is gone"


def _left(session: Session, row: Outbox, facts: Facts) -> str:
    """Whether whoever shared the booking does so no longer."""
    booking = _booking(session, facts) if facts.get("participant") else None
    return "" if booking is None or row.user_id in booking.participants else "not a participant any more"


def _booking(session: Session, facts: Facts) -> Reservation | None:
    return reservations.get(session, str(facts.get("reservation_id") or ""))


def _pending(session: Session, _row: Outbox, facts: Facts, now: int) -> str:
    row = _booking(session, facts)
    return "" if row is not None and reservations.status_at(row, now) == "pending" else "decided meanwhile"


def _holds(session: Session, _row: Outbox, facts: Facts, now: int) -> str:
    row = _booking(session, facts)
    return "" if row is not None and reservations.status_at(row, now) in HOLDING else "the booking is over meanwhile"


def _soon(session: Session, _row: Outbox, facts: Facts, now: int) -> str:
    row = _booking(session, facts)
    if row is None or row.status != "approved" or row.starts_at != facts.get("starts_at"):
        return "the booking was cancelled or moved meanwhile"
    return "" if now < row.starts_at else "it has begun meanwhile"


def _runs(session: Session, _row: Outbox, facts: Facts, now: int) -> str:
    row = _booking(session, facts)
    if row is None or not reservations.is_running(row, now):
        return "the booking is over meanwhile"
    return ""


def _ends(session: Session, row: Outbox, facts: Facts, now: int) -> str:
    booking = _booking(session, facts)
    if booking is not None and booking.ends_at != facts.get("ends_at"):
        return "the booking was moved meanwhile"
    return _runs(session, row, facts, now)


def _card(session: Session, row: Outbox, facts: Facts, now: int) -> str:
    if facts.get("message") == "card_in_use_soon":
        return _ends(session, row, facts, now)
    return "too late to be of use" if now - row.created_at > AT_THE_END_MS else ""


def _lost(session: Session, row: Outbox, facts: Facts, now: int) -> str:
    back = select(Notification.id).where(Notification.event_id == f"back:{row.event_id}"[:96]).limit(1)
    if session.scalar(back):
        return "the node is back meanwhile"
    return _holds(session, row, facts, now) if facts.get("reservation_id") else ""


def _back(session: Session, row: Outbox, _facts: Facts, _now: int) -> str:
    """Whoever never heard of the loss by this way need not hear that it is over."""
    lost = select(Outbox.state).where(
        Outbox.event_id == row.event_id.removeprefix("back:"), Outbox.way == row.way, Outbox.address == row.address
    )
    state = session.scalar(lost)
    return "" if state in (None, "sent") else "nobody was told of the loss by this way"


def _free(session: Session, _row: Outbox, facts: Facts, now: int) -> str:
    start, end = facts.get("starts_at"), facts.get("ends_at")
    channel_id = str(facts.get("channel_id") or "")
    if start is None or end is None or now >= end:
        return "too late to be of use"
    if reservations.holding_in(session, [channel_id], max(start, now), end):
        return "taken again meanwhile"
    place = session.execute(
        select(Channel.gone_at, Node.removed_at, Node.cordoned).join(Node).where(Channel.id == channel_id)
    ).one_or_none()
    return "" if place and place[0] is None and place[1] is None and not place[2] else "the channel is no longer open"


_LOOKS: dict[str, Callable[[Session, Outbox, Facts, int], str]] = {
    "requested": _pending,
    "approved": _holds,
    "booked": _holds,
    "starts_soon": _soon,
    "ready": _runs,
    "ends_soon": _ends,
    "card_in_use": _card,
    "node_lost": _lost,
    "node_back": _back,
    "maintenance": _holds,
    "slot_free": _free,
}
