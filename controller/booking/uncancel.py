"""A cancellation taken back: the same booking, with its id, its people and its history, holds its time again.

Judged as a new booking would be now, and the database's own rule has the last word: somebody may have taken the time
meanwhile. What an approver had granted stays granted while the channel's limits do not stand against it.
"""

from __future__ import annotations

from controller.booking import people, refusals, steps
from controller.booking.act import holder_of_row
from controller.booking.view import booking_of, look
from controller.context import Context
from controller.errors import Conflict
from controller.notify import inbox, together
from controller.rights import Actor
from controller.said import say
from controller.scheduling.booking_rules import COUNTS_AS_NOW, over_limits
from controller.store import reservations, users
from controller.store.tables import Reservation


def uncancel(ctx: Context, actor: Actor, now: int, reservation_id: str, reason: str) -> Reservation:
    """The booking as it is then: approved, or waiting for approval. Raises Refused (409 or 422), Conflict, Forbidden,
    NotFound."""
    with ctx.store.read() as session:
        old = steps.known(session, reservation_id)
        people.need(actor, "reservation.change", old)
        old_place = refusals.place_of(session, old)
    channel, booking = old_place.full_name if old_place else "", booking_of(old)
    with steps.refusing(ctx, actor, now, channel, [booking], reservation_id) as session:
        row = steps.known(session, reservation_id)
        if row.status != "cancelled":
            known = reservations.status_at(row, now)
            said = say(known.replace("_", " "))
            raise Conflict(say("the booking is %(status)s, not cancelled", status=said), details={"status": known})
        steps.owned(actor, row, reason)
        place = refusals.place_of(session, row)
        if place is None:
            raise refusals.unfit("channel", "channel_gone", say("the channel is no longer there"))
        user = users.get(session, row.holder_id)
        if user is None or user.disabled_at is not None:
            raise refusals.unfit("holder", "holder_disabled", say("the account of its holder is disabled"))
        holder = holder_of_row(session, row)
        steps.lock(session, ctx.settings, place, holder)
        view = look(session, ctx.settings, place, booking, now, holder, row.id)
        begun = booking.start < now - COUNTS_AS_NOW  # it goes on in the window that it had
        status = steps.judged(view, booking, booking if begun else None, actor, now)
        if row.approved_at is not None and not over_limits(booking, actor.role, view.policy, view.facts, now):
            status = "approved"
        values = {
            "status": status,
            "approved_at": now if status == "approved" else None,
            "ended_at": None,
            "decided_by": None,
            "reason": "",
            "problem": "",
            "pinned": None,
        }
        steps.write(session, row, values, actor, now, "uncancel", reason, tell=False, of=("cancelled",))
        inbox.stands_again(session, row, actor.id, reason, now)
        if status == "pending":
            together.requested(session, [row], now)
    return row
