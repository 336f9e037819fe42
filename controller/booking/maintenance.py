"""Maintenance: an exclusive booking that the administrators hold. What is in its way keeps it out, as with any other,
unless they say that it is to make way: then it is shortened, ended or cancelled in the same transaction and its holder
told why."""

from __future__ import annotations

from typing import Any, Literal

from controller.booking import refusals, steps
from controller.booking.people import need
from controller.booking.view import Place
from controller.rights import Actor
from controller.said import say
from controller.scheduling.booking_rules import Booking
from controller.store import reservations
from controller.store.session import Write
from controller.store.tables import Reservation

Fate = Literal["ended", "shortened", "cancelled"]


def permit(actor: Actor, holder: str | None) -> None:
    """Only administrators, and for nobody else. Raises Forbidden, Invalid."""
    need(actor, "reservation.maintenance")
    if holder is not None:
        raise refusals.unfit(
            "holder", "not_for_maintenance", say("the administrators hold maintenance; leave holder out")
        )


def fate(row: Reservation, booking: Booking, now: int) -> Fate:
    """What becomes of a booking in the way: one that has time left before the maintenance keeps that."""
    if row.starts_at >= booking.start:
        return "cancelled"
    if booking.start > now:
        return "shortened"
    return "ended" if row.status == "approved" else "cancelled"


def make_way(session: Write, actor: Actor, now: int, place: Place, booking: Booking, reason: str) -> list[str]:
    """Clears the window; answers the ids of the bookings that were changed. Other maintenance stays in the way."""
    if not reason.strip():
        raise refusals.unfit("reason", "missing", say("say why: holders of the bookings in the way are told"))
    changed = []
    for row in reservations.holding_in(session, [place.channel.id], booking.start, booking.end):
        if row.maintenance:
            continue
        values: dict[str, Any] = steps.ended(row, actor, now)
        act = str(values["status"])
        if fate(row, booking, now) == "shortened":
            values, act = {"ends_at": booking.start}, "shortened"
        steps.write(session, row, values, actor, now, act, reason)
        changed.append(row.id)
    return changed
