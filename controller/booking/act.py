"""Making, changing and deciding bookings: one guarded transaction each, the database's refusal turned into words here.

Every function answers with the booking as it is afterwards. Somebody else's act is told to the holder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from controller.booking import maintenance, people, refusals, steps
from controller.booking.view import Holder, Place, View, booking_of, look
from controller.context import Context
from controller.errors import Conflict
from controller.notify import inbox, together
from controller.rights import Actor
from controller.said import say
from controller.scheduling.booking_rules import NOT_WHILE_IT_RUNS, Booking, Problem, over_limits, problems, standing
from controller.store import reservations, users
from controller.store.session import Write
from controller.store.tables import HOLDING, Reservation


@dataclass(frozen=True, slots=True)
class Extras:
    """What a booking carries beside its place and time; None = as it was. `clear`: maintenance moves what is in its way,
    for `reason`."""

    note: str | None = None
    participants: list[str] | None = None
    holder: str | None = None
    clear: bool = False
    reason: str = ""


def create(
    ctx: Context, actor: Actor, now: int, channel: str, booking: Booking, extras: Extras
) -> tuple[Reservation, View]:
    """A new booking, approved or waiting for approval, and what it was judged by. Raises Refused (409 or 422),
    Forbidden."""
    only = "" if booking.maintenance else channel
    with steps.refusing(ctx, actor, now, channel, [booking], only=only) as session:
        place = steps.place_named(session, channel)
        holder = people.holder_of(session, actor, extras.holder)
        if booking.maintenance:
            maintenance.permit(actor, extras.holder)
            if extras.clear:
                maintenance.make_way(session, actor, now, place, booking, extras.reason)
        steps.lock(session, ctx.settings, place, holder)
        view = look(session, ctx.settings, place, booking, now, holder)
        status = steps.judged(view, booking, None, actor, now)
        row = new_row(session, actor, now, place, booking, status, holder, extras)
        reservations.insert(session, row)
        steps.done(session, row, actor, now, "create", None, extras.reason)
        inbox.acted_for(session, row, actor.id, "booked", "", now)
        if status == "pending":
            together.requested(session, [row], now)
    return row, view


def new_row(
    session: Write,
    actor: Actor,
    now: int,
    place: Place,
    booking: Booking,
    status: str,
    holder: Holder,
    extras: Extras,
    series_id: str | None = None,
) -> Reservation:
    """A booking that is not in the database yet. Raises Invalid for people that nobody knows."""
    return Reservation(
        channel_id=place.channel.id,
        kind=booking.kind,
        model=booking.model,
        preset=booking.preset,
        starts_at=booking.start,
        ends_at=booking.end,
        maintenance=booking.maintenance,
        series_id=series_id,
        status=status,
        holder_id=holder.id,
        booked_by=actor.id,
        note=extras.note or "",
        participants=people.participants(session, extras.participants or [], holder.id),
        created_at=now,
        approved_at=now if status == "approved" else None,
        decided_by=None,
    )


def edit(
    ctx: Context,
    actor: Actor,
    now: int,
    reservation_id: str,
    version: int | None,
    changes: dict[str, Any],
    extras: Extras,
    reason: str,
) -> Reservation:
    """Changes a booking by create's rules without itself. `changes`: any of channel, kind, model, preset, start, end."""
    with ctx.store.read() as session:
        old = steps.known(session, reservation_id)
        old_place = refusals.place_of(session, old)
        channel = changes.get("channel", old_place.full_name if old_place else "")
        booking = wished(old, changes)
    with steps.refusing(ctx, actor, now, channel, [booking], reservation_id) as session:
        row = steps.changeable(session, actor, reservation_id, now, reason, version)
        own = None if "channel" in changes else refusals.place_of(session, row)  # gone or not
        booking, place = wished(row, changes), own or steps.place_named(session, channel)
        holder = None if extras.holder is None else people.holder_of(session, actor, extras.holder)
        values: dict[str, Any] = {}
        if booking != booking_of(row) or place.channel.id != row.channel_id:
            values = _new_window(ctx, session, place, row, booking, actor, now, holder)
        if extras.note is not None:
            values["note"] = extras.note
        if extras.participants is not None:
            values["participants"] = people.participants(session, extras.participants, row.holder_id)
        if holder is not None:
            values["holder_id"] = holder.id
        if values:
            steps.write(session, row, values, actor, now, "edit", reason)
            session.touch(place.channel.id)
            if values.get("status") == "pending":
                together.requested(session, [row], now)
    return row


def extend(
    ctx: Context,
    actor: Actor,
    now: int,
    reservation_id: str,
    end: int | None,
    minutes: float | None,
    reason: str,
    version: int | None = None,
) -> Reservation:
    """Moves the end to a later instant, or by so many minutes; `version` as in `edit`."""
    with ctx.store.read() as session:
        row = steps.known(session, reservation_id)
    if end is None:
        end = row.ends_at + round((minutes or 0) * 60_000)
    if reservations.status_at(row, now) in HOLDING and end <= row.ends_at:
        raise refusals.unfit(
            "ends_at", "not_later", say("is not later than the present end; edit the booking to shorten it")
        )
    return edit(ctx, actor, now, reservation_id, version or row.version, {"end": end}, Extras(), reason)


def end(ctx: Context, actor: Actor, now: int, reservation_id: str, reason: str) -> Reservation:
    """Ends a running booking, cancels one that has not begun: `end` and `cancel` are the same act."""
    with ctx.store.write() as session:
        row = steps.changeable(session, actor, reservation_id, now, reason)
        values = steps.ended(row, actor, now)
        steps.write(session, row, values, actor, now, values["status"], reason)
    return row


def decide(ctx: Context, actor: Actor, now: int, reservation_id: str, approve: bool, reason: str) -> Reservation:
    """Approves (after looking again) or rejects a request. Raises Refused, Conflict, Forbidden, NotFound."""
    people.need(actor, "reservation.decide")
    if not approve and not reason.strip():
        raise refusals.unfit("reason", "missing", say("say why, the requester will read it"))
    with ctx.store.read() as session:
        old = steps.known(session, reservation_id)
        old_place = refusals.place_of(session, old)
    channel = old_place.full_name if old_place else ""
    with steps.refusing(ctx, actor, now, channel, [booking_of(old)], reservation_id) as session:
        row = steps.known(session, reservation_id)
        status = reservations.status_at(row, now)
        if status != "pending":
            said = say(status.replace("_", " "))
            raise Conflict(
                say("the booking is %(status)s; only a pending one can be decided", status=said),
                details={"status": status},
            )
        if approve:
            _approvable(ctx, session, refusals.place_of(session, row), row, actor, now)
            values = {"status": "approved", "approved_at": now, "decided_by": actor.id}
        else:
            values = {"status": "rejected", "ended_at": now, "decided_by": actor.id}
        steps.write(session, row, values, actor, now, str(values["status"]), reason)
    return row


def wished(row: Reservation, changes: dict[str, Any]) -> Booking:
    """A booking as it would be with these changes."""
    fields = {k: v for k, v in changes.items() if k != "channel"}
    booking = replace(booking_of(row), **fields)
    if booking.kind == "exclusive" and "kind" in changes:
        return replace(booking, model=changes.get("model"), preset=changes.get("preset"))
    if "model" in changes and "preset" not in changes and booking.model != row.model:
        return replace(booking, preset=None)  # the old preset belongs to the old model
    return booking


def _new_window(
    ctx: Context,
    session: Write,
    place: Place,
    row: Reservation,
    booking: Booking,
    actor: Actor,
    now: int,
    new_holder: Holder | None,
) -> dict[str, Any]:
    before = booking_of(row)
    moved = place.channel.id != row.channel_id
    running = reservations.is_running(row, now)
    if running and moved:
        raise refusals.unfit(
            "channel", "already_begun", say("this booking has begun; end it and book the other channel")
        )
    if running and booking.kind != before.kind:
        raise refusals.unfit("kind", "already_begun", say("this booking has begun; end it and book anew"))
    holder = new_holder or holder_of_row(session, row)
    steps.lock(session, ctx.settings, place, holder)
    view = look(session, ctx.settings, place, booking, now, holder, row.id)
    status = steps.judged(view, booking, None if moved else before, actor, now)
    same_target = (booking.kind, booking.model, booking.preset) == (before.kind, before.model, before.preset)
    shrinks = same_target and not moved and before.start <= booking.start and booking.end <= before.end
    values: dict[str, Any] = {
        "channel_id": place.channel.id,
        "kind": booking.kind,
        "model": booking.model,
        "preset": booking.preset,
        "starts_at": booking.start,
        "ends_at": booking.end,
    }
    if row.status == "approved" and status == "pending" and not shrinks:
        if running:
            raise refusals.refused(_not_while_it_runs(view, booking, before, actor, now))
        values |= {"status": "pending", "approved_at": None, "decided_by": None, "committed": False}
    elif row.status == "pending" and _needs_no_word(view, booking, actor, now):
        values |= {"status": "approved", "approved_at": now}
    if moved or not same_target or booking.start != before.start:
        values |= {"committed": False}
    if moved or booking.start != before.start:
        values |= {"problem": ""}  # of the place or time that it had
    if not same_target:
        values |= {"pinned": None}
    return values


def holder_of_row(session: Any, row: Reservation) -> Holder:
    """The holder of a booking as the rules need it; somebody who is gone has no role."""
    user = users.get(session, row.holder_id)
    return Holder(row.holder_id, user.role if user else "")


def _needs_no_word(view: View, booking: Booking, actor: Actor, now: int) -> bool:
    """Whether a request, as it is now, would have been granted without an approver."""
    found = over_limits(booking, actor.role, view.policy, view.facts, now)
    return standing(booking, found, actor.role, view.policy) == "approved"


def _not_while_it_runs(view: View, booking: Booking, before: Booking, actor: Actor, now: int) -> list[Problem]:
    """A running booking cannot wait for approval: what is in the way, and the way out."""
    found = problems(booking, before, actor.role, view.policy, view.facts, now)
    return [*(p for p in found if not p.overridable), Problem("ends_at", "needs_approval", NOT_WHILE_IT_RUNS)]


def _approvable(ctx: Context, session: Write, place: Place | None, row: Reservation, actor: Actor, now: int) -> None:
    if place is None:
        raise refusals.unfit("channel", "channel_gone", say("the channel is no longer there"))
    holder = users.get(session, row.holder_id)
    if holder is None or holder.disabled_at is not None:
        raise refusals.unfit("holder", "holder_disabled", say("the requester's account is disabled"))
    booking = booking_of(row)
    view = look(session, ctx.settings, place, booking, now, Holder(holder.id, holder.role), row.id)
    found = problems(booking, booking, actor.role, view.policy, view.facts, now)
    against: list[Problem] = [p for p in found if not p.overridable and not p.requestable and p.code != "not_admitted"]
    if against and all(p.code == "overlap" for p in against):
        raise refusals.Overlap
    if against:
        raise refusals.refused(against)
