"""Making, changing and deciding bookings: one guarded transaction each, the database's refusal turned into words here.

Every function answers with the booking as it is afterwards. Somebody else's act is told to the holder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import IntegrityError

from controller.booking import refusals
from controller.booking.view import Place, View, booking_of, find_place, look
from controller.context import Context
from controller.errors import Conflict, Forbidden, NotFound
from controller.notify import inbox
from controller.rights import Actor, Owned, may
from controller.scheduling.booking_rules import Booking, Problem, problems, standing
from controller.store import audit, overlap, reservations, users
from controller.store.session import Write
from controller.store.tables import HOLDING, Reservation


@dataclass(frozen=True, slots=True)
class Extras:
    """What a booking carries beside its place and time; None = as it was."""

    note: str | None = None
    participants: list[str] | None = None
    holder: str | None = None


def create(
    ctx: Context, actor: Actor, now: int, channel: str, booking: Booking, extras: Extras
) -> tuple[Reservation, View]:
    """A new booking, approved or waiting for approval, and what it was judged by. Raises Refused (409 or 422),
    Forbidden."""
    with _refusing(ctx, actor, now, channel, booking) as session:
        place = _place(session, channel)
        holder = _holder(session, actor, extras.holder)
        participants = _participants(session, extras.participants or [], holder)
        view = look(session, ctx.settings, place, booking)
        status = _judged(view, booking, None, actor, now)
        row = Reservation(
            channel_id=place.channel.id,
            kind=booking.kind,
            model=booking.model,
            preset=booking.preset,
            starts_at=booking.start,
            ends_at=booking.end,
            status=status,
            holder_id=holder,
            booked_by=actor.id,
            note=extras.note or "",
            participants=participants,
            created_at=now,
            approved_at=now if status == "approved" else None,
            decided_by=None,
        )
        session.add(row)
        session.flush()
        _done(session, place, row, actor, now, "create", None, "")
        text = f"{actor.name} has booked {place.full_name} for you."
        inbox.acted_for(session, row, actor.id, "booked", text, now)
        if status == "pending":
            inbox.requested(session, row, f"{actor.name} asks for a booking on {place.full_name}.", now)
    return row, view


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
        old = _known(session, reservation_id)
        old_place = refusals.place_of(session, old)
        channel = changes.get("channel", old_place.full_name if old_place else "")
        booking = _wished(old, changes)
    with _refusing(ctx, actor, now, channel, booking, reservation_id) as session:
        row = _changeable(session, actor, reservation_id, now, reason)
        if version is not None and version != row.version:
            raise Conflict(
                f"version: the booking was changed meanwhile (it is at version {row.version}); look at it again",
                details={"version": row.version},
            )
        booking, place = _wished(row, changes), _place(session, channel)
        before = booking_of(row)
        moved = place.channel.id != row.channel_id
        values: dict[str, Any] = {}
        if booking != before or moved:
            values = _new_window(ctx, session, place, row, booking, actor, now, moved)
        if extras.note is not None:
            values["note"] = extras.note
        if extras.participants is not None:
            values["participants"] = _participants(session, extras.participants, row.holder_id)
        if extras.holder is not None:
            values["holder_id"] = _holder(session, actor, extras.holder)
        if values:
            _write(session, place, row, values, actor, now, "edit", reason)
            session.touch(place.channel.id)
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
        row = _known(session, reservation_id)
    if end is None:
        end = row.ends_at + round((minutes or 0) * 60_000)
    if reservations.status_at(row, now) in HOLDING and end <= row.ends_at:
        raise refusals.unfit(
            "ends_at", "not_later", "is not later than the present end; edit the booking to shorten it"
        )
    return edit(ctx, actor, now, reservation_id, version or row.version, {"end": end}, Extras(), reason)


def end(ctx: Context, actor: Actor, now: int, reservation_id: str, reason: str) -> Reservation:
    """Ends a running booking, cancels one that has not begun: `end` and `cancel` are the same act."""
    with ctx.store.write() as session:
        row = _changeable(session, actor, reservation_id, now, reason)
        place = refusals.place_of(session, row)
        status = "ended_early" if reservations.is_running(row, now) else "cancelled"
        values = {"status": status, "ended_at": now, "decided_by": actor.id, "committed": False}
        _write(session, place, row, values, actor, now, status, reason)
    return row


def decide(ctx: Context, actor: Actor, now: int, reservation_id: str, approve: bool, reason: str) -> Reservation:
    """Approves (after looking again) or rejects a request. Raises Refused, Conflict, Forbidden, NotFound."""
    _need(actor, "reservation.decide")
    if not approve and not reason.strip():
        raise refusals.unfit("reason", "missing", "say why, the requester will read it")
    with ctx.store.read() as session:
        old = _known(session, reservation_id)
        old_place = refusals.place_of(session, old)
    channel = old_place.full_name if old_place else ""
    with _refusing(ctx, actor, now, channel, booking_of(old), reservation_id) as session:
        row = _known(session, reservation_id)
        status = reservations.status_at(row, now)
        if status != "pending":
            raise Conflict(f"the booking is {status}; only a pending one can be decided", details={"status": status})
        place = refusals.place_of(session, row)
        if approve:
            _approvable(ctx, session, place, row, actor, now)
            values = {"status": "approved", "approved_at": now, "decided_by": actor.id}
        else:
            values = {"status": "rejected", "ended_at": now, "decided_by": actor.id}
        _write(session, place, row, values, actor, now, str(values["status"]), reason)
    return row


def check_people(session: Any, actor: Actor, holder: str | None, participants: list[str]) -> None:
    """Whether the people of a wish exist and may be named. Raises Invalid, Forbidden."""
    _participants(session, participants, _holder(session, actor, holder))


@contextmanager
def _refusing(
    ctx: Context, actor: Actor, now: int, channel: str, booking: Booking, besides: str | None = None
) -> Iterator[Write]:
    """A write transaction; an overlap, said by the rules or by the database, becomes a 409 after the rollback."""
    try:
        with ctx.store.write() as session:
            yield session
    except refusals.Overlap:
        raise refusals.conflict(ctx, actor, now, channel, booking, besides) from None
    except IntegrityError as err:
        if not overlap.refused(err):
            raise
        raise refusals.conflict(ctx, actor, now, channel, booking, besides) from None


def _judged(view: View, booking: Booking, replaces: Booking | None, actor: Actor, now: int) -> str:
    """The status the booking would have. Raises Refused with every problem, Overlap where only that is in the way."""
    found = problems(booking, replaces, actor.role, view.policy, view.facts, now)
    status = standing(booking, found, actor.role, view.policy)
    if status != "refused":
        return status
    against = [p for p in found if not p.overridable]
    others = [p for p in against if p.code != "overlap" and not (p.requestable and view.policy.requests)]
    if not others:
        raise refusals.Overlap
    raise refusals.refused(against)


def _new_window(
    ctx: Context, session: Write, place: Place, row: Reservation, booking: Booking, actor: Actor, now: int, moved: bool
) -> dict[str, Any]:
    before = booking_of(row)
    running = reservations.is_running(row, now)
    if running and moved:
        raise refusals.unfit("channel", "already_begun", "this booking has begun; end it and book the other channel")
    if running and booking.kind != before.kind:
        raise refusals.unfit("kind", "already_begun", "this booking has begun; end it and book anew")
    view = look(session, ctx.settings, place, booking, row.id)
    status = _judged(view, booking, None if moved else before, actor, now)
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
            raise refusals.unfit("ends_at", "needs_approval", "needs an approver's word, and the booking runs: ask one")
        values |= {"status": "pending", "approved_at": None, "committed": False}
    if moved or not same_target or booking.start != before.start:
        values |= {"committed": False}
    if not same_target:
        values |= {"pinned": None}
    return values


def _approvable(ctx: Context, session: Write, place: Place | None, row: Reservation, actor: Actor, now: int) -> None:
    if place is None:
        raise refusals.unfit("channel", "channel_gone", "the channel is no longer there")
    holder = users.get(session, row.holder_id)
    if holder is None or holder.disabled_at is not None:
        raise refusals.unfit("holder", "holder_disabled", "the requester's account is disabled")
    booking = booking_of(row)
    view = look(session, ctx.settings, place, booking, row.id)
    found = problems(booking, booking, actor.role, view.policy, view.facts, now)
    against: list[Problem] = [p for p in found if not p.overridable and not p.requestable]
    if against and all(p.code == "overlap" for p in against):
        raise refusals.Overlap
    if against:
        raise refusals.refused(against)


def _write(
    session: Write,
    place: Place | None,
    row: Reservation,
    values: dict[str, Any],
    actor: Actor,
    now: int,
    act: str,
    reason: str,
) -> None:
    before = refusals.record(row)
    old_channel, old_holder = row.channel_id, row.holder_id
    reservations.change(session, row, HOLDING, {**values, **({"reason": reason} if reason else {})})
    session.touch(old_channel)
    _done(session, place, row, actor, now, act, before, reason)
    if act != "create":
        name = place.full_name if place else "a channel that is gone"
        words = _TOLD.get(act, "changed")
        text = f"{actor.name} has {words} your booking on {name}{': ' + reason if reason else '.'}"
        inbox.acted_for(session, row, actor.id, _KINDS.get(act, act), text, now)
        if row.holder_id != old_holder:
            text = f"{actor.name} has given your booking on {name} to somebody else{': ' + reason if reason else '.'}"
            inbox.notify(session, f"given:{row.id}:{row.version}", [old_holder], "changed", row.id, text, now)


_TOLD = {"ended_early": "ended", "cancelled": "cancelled", "approved": "approved", "rejected": "rejected"}
_KINDS = {"edit": "changed", "ended_early": "ended"}


def _done(
    session: Write,
    place: Place | None,
    row: Reservation,
    actor: Actor,
    now: int,
    act: str,
    before: dict[str, Any] | None,
    reason: str,
) -> None:
    session.touch(row.channel_id)
    audit.add(
        session, actor.id, f"reservation.{act}", row.id, now, before=before, after=refusals.record(row), reason=reason
    )


def _known(session: Any, reservation_id: str) -> Reservation:
    row = reservations.get(session, reservation_id)
    if row is None:
        raise NotFound(f"there is no booking {reservation_id}")
    return row


def _changeable(session: Any, actor: Actor, reservation_id: str, now: int, reason: str) -> Reservation:
    row = _known(session, reservation_id)
    _need(actor, "reservation.change", row)
    status = reservations.status_at(row, now)
    if status not in HOLDING:
        raise Conflict(f"the booking is {status.replace('_', ' ')}; nothing can be changed", details={"status": status})
    if row.holder_id != actor.id and not reason.strip():
        raise refusals.unfit("reason", "missing", "say why: this is somebody else's booking, and its holder is told")
    return row


def _wished(row: Reservation, changes: dict[str, Any]) -> Booking:
    fields = {k: v for k, v in changes.items() if k != "channel"}
    booking = replace(booking_of(row), **fields)
    if booking.kind == "exclusive" and "kind" in changes:
        return replace(booking, model=changes.get("model"), preset=changes.get("preset"))
    if "model" in changes and "preset" not in changes and booking.model != row.model:
        return replace(booking, preset=None)  # the old preset belongs to the old model
    return booking


def _place(session: Any, channel: str) -> Place:
    place = find_place(session, channel)
    if place is None:
        raise refusals.unfit("channel", "unknown_channel", f"there is no channel {channel!r}; name it node/channel")
    return place


def _holder(session: Any, actor: Actor, holder: str | None) -> str:
    if holder is None:
        return actor.id
    user = users.find(session, holder)
    if user is None:
        raise refusals.unfit("holder", "unknown_person", f"there is nobody with the id or name {holder!r}")
    _need(actor, "reservation.create", Owned(user.id))
    if user.disabled_at is not None:
        raise refusals.unfit("holder", "holder_disabled", f"the account of {user.name} is disabled")
    return user.id


def _participants(session: Any, wanted: list[str], holder: str) -> list[str]:
    ids: list[str] = []
    for index, one in enumerate(wanted):
        user = users.find(session, one)
        if user is None:
            message = f"there is nobody with the id or name {one!r}"
            raise refusals.unfit(f"participants.{index}", "unknown_person", message)
        if user.id != holder and user.id not in ids:
            ids.append(user.id)
    return ids


def _need(actor: Actor, action: str, subject: Any = None) -> None:
    verdict = may(actor, action, subject)
    if not verdict:
        raise Forbidden(verdict.why)
