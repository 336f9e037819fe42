"""Where else a booking could be: channels that are connected, free for all that is left of it, and take it by their rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from controller.booking import free
from controller.booking.view import Holder, booking_of, find_place, look
from controller.context import Context
from controller.rights import Actor
from controller.scheduling.booking_rules import Booking, Problem, problems, standing
from controller.store import channels, reservations
from controller.store.tables import HOLDING, Reservation

MOST = 3
LOOKED_AT = 10  # free channels whose rules are asked


@dataclass(frozen=True, slots=True)
class Offer:
    """A channel that fits; `needs_approval`: the booking would wait for an approver there."""

    window: free.Window
    needs_approval: bool

    def shape(self) -> dict[str, Any]:
        return {**self.window.shape(), "needs_approval": self.needs_approval}


def rest(row: Reservation, now: int) -> Booking:
    """What is left of a booking."""
    return replace(booking_of(row), start=max(row.starts_at, now))


def against(found: list[Problem], running: bool) -> list[Problem]:
    """What speaks against a move: what is left of a booking that runs is as short as it is."""
    return [p for p in found if not (running and p.code == "too_short")]


def elsewhere(
    session: Session, ctx: Context, actor: Actor, holder: Holder, row: Reservation, now: int, most: int = MOST
) -> list[Offer]:
    """The best first; empty for maintenance and for what has ended."""
    if row.maintenance or reservations.status_at(row, now) not in HOLDING:
        return []
    booking, running = rest(row, now), reservations.is_running(row, now)
    wish = free.Wish(
        booking.kind,
        booking.model,
        booking.preset,
        booking.end - booking.start,
        booking.start,
        (holder.id, holder.role),
    )
    here = channels.full_names(session, {row.channel_id}).get(row.channel_id)
    found = [
        w
        for w in free.ranked(session, ctx, wish, now, besides=row.id, each=1)
        if w.online and not w.missing and w.slot.start == booking.start and w.channel != here
    ]
    offers: list[Offer] = []
    for window in found[:LOOKED_AT]:
        place = find_place(session, window.channel)
        if place is None:
            continue
        view = look(session, ctx.settings, place, booking, now, holder, row.id)
        said = against(problems(booking, None, actor.role, view.policy, view.facts, now), running)
        status = standing(booking, said, actor.role, view.policy)
        if status == "approved" or (status == "pending" and not running):
            offers.append(Offer(window, status == "pending"))
        if len(offers) == most:
            break
    return offers
