"""A booking goes to another channel, because somebody says so: nothing is ever moved silently.

One that is still to come keeps its id and is judged as any other change. One that runs is ended where it is, and what is
left of it is booked on the other channel, in one transaction: the old node may be cut off and serve on for a while, and
its history stays what it was.
"""

from __future__ import annotations

from controller.booking import act, offers, refusals, steps
from controller.booking.view import look
from controller.context import Context
from controller.errors import Conflict
from controller.notify import inbox
from controller.rights import Actor
from controller.said import say
from controller.scheduling.booking_rules import Problem, problems, standing
from controller.store import reservations
from controller.store.tables import Reservation

NOT_ELSEWHERE = say("a running booking cannot wait for approval there; book that channel as a booking of its own")


def move(
    ctx: Context, actor: Actor, now: int, reservation_id: str, channel: str | None, version: int | None, reason: str
) -> tuple[Reservation, str | None]:
    """The booking where it is now, and the id of the one that was ended for it. Without a channel: to the best that fits.
    Raises Refused (409 or 422), Conflict, Forbidden, NotFound."""
    with ctx.store.read() as session:
        row = steps.changeable(session, actor, reservation_id, now, reason)
        if row.maintenance:
            raise refusals.unfit(
                "channel", "not_for_maintenance", say("maintenance is of its channel; book the other one")
            )
        old = refusals.place_of(session, row)
        if channel is None:
            channel = _best(ctx, session, actor, row, now)
        elif old is not None and channel == old.full_name:
            raise refusals.unfit("channel", "same_channel", say("the booking is on this channel already"))
        running = reservations.is_running(row, now)
    if not running:
        wanted = {"channel": channel}
        return act.edit(ctx, actor, now, reservation_id, version, wanted, act.Extras(), reason), None
    return _begin_elsewhere(ctx, actor, now, reservation_id, channel, version, reason), reservation_id


def _best(ctx: Context, session, actor: Actor, row: Reservation, now: int) -> str:
    holder = act.holder_of_row(session, row)
    found = offers.elsewhere(session, ctx, actor, holder, row, now, 1)
    if found:
        return found[0].window.channel
    old, wish = refusals.place_of(session, row), offers.rest(row, now)
    nearest = refusals.suggest(session, ctx, old, wish, now, row.id, (holder.id, holder.role)) if old else []
    raise Conflict(
        say("no other channel that fits is free for all of that time; the booking stays where it is"),
        details={"channel": say("none fits")},
        conflicts=[],
        suggestions=[s for s in nearest if old is None or s["channel"] != old.full_name],
    )


def _begin_elsewhere(
    ctx: Context, actor: Actor, now: int, reservation_id: str, channel: str, version: int | None, reason: str
) -> Reservation:
    with ctx.store.read() as session:
        wish = offers.rest(steps.known(session, reservation_id), now)
    with steps.refusing(ctx, actor, now, channel, [wish], reservation_id) as session:
        row = steps.changeable(session, actor, reservation_id, now, reason, version)
        place, holder, old = (
            steps.place_named(session, channel), act.holder_of_row(session, row), refusals.place_of(session, row),
        )  # fmt: skip
        steps.lock(session, ctx.settings, place, holder)
        before, booking = refusals.record(row), offers.rest(row, now)
        said = f"moved to {place.full_name}{': ' + reason if reason else ''}"
        steps.write(session, row, steps.ended(row, actor, now), actor, now, "ended_early", said, tell=False)
        view = look(session, ctx.settings, place, booking, now, holder)
        found = offers.against(problems(booking, None, actor.role, view.policy, view.facts, now), True)
        status = standing(booking, found, actor.role, view.policy)
        if status != "approved":
            in_the_way = [p for p in found if not p.overridable]
            if in_the_way and all(p.code == "overlap" for p in in_the_way):
                raise refusals.Overlap
            waits = Problem("channel", "needs_approval", NOT_ELSEWHERE)
            raise refusals.refused(in_the_way if status == "refused" else [waits])
        fresh = act.new_row(session, actor, now, place, booking, status, holder, act.Extras(note=row.note))
        fresh.participants, fresh.series_id = list(row.participants), row.series_id
        reservations.insert(session, fresh)
        steps.done(
            session, fresh, actor, now, "create", None, f"moved from {old.full_name if old else 'a lost channel'}"
        )
        inbox.acted_for(session, fresh, actor.id, "changed", reason, now, before)
    return fresh
