"""What every change of a booking is made of: the guarded transaction, the judgement, the write with its audit row and word
to the holder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from controller.booking import refusals
from controller.booking.people import need
from controller.booking.view import Holder, Place, View, find_place, policy_for
from controller.context import Context
from controller.errors import Conflict, NotFound
from controller.notify import inbox
from controller.rights import Actor
from controller.said import say
from controller.scheduling.booking_rules import Booking, problems, standing
from controller.settings import Settings
from controller.store import audit, overlap, reservations
from controller.store.session import Write
from controller.store.tables import HOLDING, Channel, Reservation, User


@contextmanager
def refusing(
    ctx: Context,
    actor: Actor,
    now: int,
    channel: str,
    wishes: Sequence[Booking],
    besides: str | None = None,
    only: str = "",
) -> Iterator[Write]:
    """A write transaction (`only` as the store's); an overlap, said by the rules or by the database, becomes a 409 after
    the rollback."""
    try:
        with ctx.store.write(only) as session:
            yield session
    except refusals.Overlap:
        raise refusals.conflict(ctx, actor, now, channel, wishes, besides) from None
    except IntegrityError as err:
        if not overlap.refused(err):
            raise
        raise refusals.conflict(ctx, actor, now, channel, wishes, besides) from None


def lock(session: Write, settings: Settings, place: Place, holder: Holder) -> None:
    """Where hours are counted: the person, then the channel, always in that order, so that nobody counts meanwhile. (No
    write of ours about the channel goes on beside this one anyway; this holds for whoever else writes there.)"""
    if policy_for(settings, place.channel).counts_hours:
        session.execute(select(User.id).where(User.id == holder.id).with_for_update(key_share=True))
        session.execute(select(Channel.id).where(Channel.id == place.channel.id).with_for_update(key_share=True))


def judged(view: View, booking: Booking, replaces: Booking | None, actor: Actor, now: int) -> str:
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


def known(session: Any, reservation_id: str) -> Reservation:
    """Raises NotFound."""
    row = reservations.get(session, reservation_id)
    if row is None:
        raise NotFound(say("there is no booking %(id)s", id=reservation_id))
    return row


def owned(actor: Actor, row: Reservation, reason: str) -> None:
    """Whether the actor may change a booking, and has said why where it is somebody else's."""
    need(actor, "reservation.change", row)
    if row.holder_id != actor.id and not row.maintenance and not reason.strip():
        raise refusals.unfit(
            "reason", "missing", say("say why: this is somebody else's booking, and its holder is told")
        )


def changeable(
    session: Any, actor: Actor, reservation_id: str, now: int, reason: str, version: int | None = None
) -> Reservation:
    """A booking that has not ended, for somebody who may change it. `version`: the one that they have seen, where they say
    it. Raises NotFound, Forbidden, Conflict, Invalid."""
    row = known(session, reservation_id)
    need(actor, "reservation.change", row)
    status = reservations.status_at(row, now)
    if status not in HOLDING:
        raise Conflict(
            say("the booking is %(status)s; nothing can be changed", status=say(status.replace("_", " "))),
            details={"status": status},
        )
    owned(actor, row, reason)
    if version is not None and version != row.version:
        raise Conflict(
            say(
                "version: the booking was changed meanwhile (it is at version %(version)s); look at it again",
                version=row.version,
            ),
            details={"version": row.version},
        )
    return row


def place_named(session: Any, channel: str) -> Place:
    """Raises Invalid."""
    place = find_place(session, channel)
    if place is None:
        raise refusals.unfit(
            "channel",
            "unknown_channel",
            say("there is no channel %(channel)s; name it node/channel", channel=repr(channel)),
        )
    return place


def ended(row: Reservation, actor: Actor, now: int) -> dict[str, Any]:
    """What is written of a booking that is ended, or cancelled before its start."""
    status = "ended_early" if reservations.is_running(row, now) else "cancelled"
    return {"status": status, "ended_at": now, "decided_by": actor.id, "committed": False}


def write(
    session: Write,
    row: Reservation,
    values: dict[str, Any],
    actor: Actor,
    now: int,
    act: str,
    reason: str,
    tell: bool = True,
    of: tuple[str, ...] = HOLDING,
) -> None:
    """A guarded change of a booking (of one that holds its time, or is of one of these statuses), its audit row, and what
    its holder is told."""
    before = refusals.record(row)
    old_channel, old_holder = row.channel_id, row.holder_id
    reservations.change(session, row, of, {**values, **({"reason": reason} if reason else {})}, now)
    session.touch(old_channel)
    done(session, row, actor, now, act, before, reason)
    if not tell:
        return
    inbox.acted_for(session, row, actor.id, act, reason, now, before)
    if row.holder_id != old_holder:
        inbox.given(session, row, old_holder, actor.id, reason, now)


def done(
    session: Write, row: Reservation, actor: Actor, now: int, act: str, before: dict[str, Any] | None, reason: str
) -> None:
    """The audit row, and a word to the planner."""
    session.touch(row.channel_id)
    audit.add(
        session, actor.id, f"reservation.{act}", row.id, now, before=before, after=refusals.record(row), reason=reason
    )
