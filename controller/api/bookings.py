"""Reservations: list, look, make, check, change. The work is done in controller/booking; decisions.py has the rest."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from controller.api import booking_answers as answers
from controller.api.booking_bodies import Check, Listing, NewReservation, ReservationChange, problem
from controller.api.route import Call, Route, cursor, listed, place
from controller.booking import act, maintenance, people, refusals, series, steps, view
from controller.errors import Forbidden, Invalid
from controller.rights import HolderName
from controller.said import say, words_of
from controller.scheduling.booking_rules import (
    NOT_WHILE_IT_RUNS,
    Booking,
    Problem,
    effective_start,
    problems,
    standing,
)
from controller.scheduling.repeats import RepeatError
from controller.store import channels, reservations, users
from controller.store.tables import Reservation

_NOTHING: dict[str, Any] = {
    **answers.UNTOLD, "status": "refused", "conflicts": [], "suggestions": [], "occurrences": [], "policy": [], "hours": None,
}  # fmt: skip
FIXED = ("channel", "kind", "ends_at", "note", "participants", "holder")  # null is no value of theirs


def list_reservations(call: Call) -> dict[str, Any]:
    query = call.query(Listing)
    after = place(query.cursor, int, str)
    if query.start is not None and query.end is not None and query.start >= query.end:
        raise Invalid.field("to", say("must be later than `from`"))
    with call.ctx.store.read() as session:
        rows = reservations.page(
            session,
            call.now,
            query.limit + 1,
            (after[0], after[1]) if after else None,
            start=query.start,
            end=query.end,
            channel_id=_channel_id(session, query.channel),
            holder_id=_holder_id(session, call, query.holder),
            status=query.status,
            series_id=query.series,
        )
        shape = answers.shaper(session, call, rows)
    return listed(rows, query.limit, shape, lambda r: cursor(r.starts_at, r.id))


def one_reservation(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        return answers.whole(session, call, steps.known(session, call.args["id"]))


def create(call: Call) -> dict[str, Any]:
    body = call.body(NewReservation)
    booking, counted = body.booking(call.now)
    extras = act.Extras(body.note, body.participants, body.holder, body.clear_conflicts, body.reason)
    hints = answers.counted(counted)
    if body.repeat is None:
        row, seen = act.create(call.ctx, call.actor, call.now, body.channel, booking, extras)
        return answers.new(call, row, seen, hints)
    try:
        made = series.create(call.ctx, call.actor, call.now, body.channel, booking, extras, body.repeat.repeat())
    except RepeatError as err:
        raise refusals.unfit(err.field, "bad_repeat", words_of(err)) from None
    answer = answers.new(call, made.rows[0], made.view, hints)
    with call.ctx.store.read() as session:
        shape = answers.shaper(session, call, made.rows)
    answer["series"] = {
        "id": made.series.id,
        "rule": made.series.rule,
        "made": [shape(row) for row in made.rows],
        "skipped": [answers.occurrence(o) for o in made.skipped],
    }
    return answer


def check(call: Call) -> dict[str, Any]:
    """What creating (or, with `replaces`, changing) would say, from the same functions; writes nothing."""
    body, ctx = call.body(Check), call.ctx
    booking, counted = body.booking(call.now)
    hints = answers.counted(counted)
    with ctx.store.read() as session:
        try:
            old = _replaced(session, call, body.replaces)
            holder = people.check(session, call.actor, body.holder, body.participants or [])
            if old is not None and body.holder is None:
                holder = act.holder_of_row(session, old)
            if booking.maintenance:
                maintenance.permit(call.actor, body.holder)
            where = steps.place_named(session, body.channel)
            if body.repeat is not None:
                return _check_series(session, call, body, booking, where, holder, hints)
        except Forbidden as err:
            field = "maintenance" if booking.maintenance else "holder"
            return _refused([problem(field, "forbidden", err.message)])
        except Invalid as err:
            return _refused(err.extra.get("problems") or [problem(f, "invalid", w) for f, w in err.details.items()])
        besides = old.id if old is not None else None
        seen = view.look(session, ctx.settings, where, booking, call.now, holder, besides)
        before = view.booking_of(old) if old is not None and old.channel_id == where.channel.id else None
        found = problems(booking, before, call.actor.role, seen.policy, seen.facts, call.now)
        if body.clear_conflicts:
            found = [p for p in found if p.code != "overlap" or any(r.maintenance for r in seen.in_the_way)]
        status = standing(booking, found, call.actor.role, seen.policy)
        if status == "pending" and old is not None and reservations.is_running(old, call.now):
            found, status = [*found, Problem("ends_at", "needs_approval", NOT_WHILE_IT_RUNS)], "refused"
        hints += [
            {"code": p.code, "message": say("Over a limit, which you may pass: %(limit)s.", limit=p.message)}
            for p in found
            if p.overridable
        ]
        hints += [*answers.status_hints(status), *answers.away(call, where)]
        conflicts = answers.conflicts(session, call, where, seen.in_the_way)
        if booking.maintenance:
            for shape, row in zip(conflicts, seen.in_the_way, strict=True):
                shape["would_be"] = None if row.maintenance else maintenance.fate(row, booking, call.now)
        suggestions = (
            refusals.suggest(session, ctx, where, booking, call.now, besides, (holder.id, holder.role))
            if seen.in_the_way
            else []
        )
        return {
            **_NOTHING,
            "problems": [p.shape() for p in found if not p.overridable],
            "hints": hints,
            "status": status,
            "conflicts": conflicts,
            "suggestions": suggestions,
            **answers.limits(call, seen, holder, booking.start),
            **answers.told(view.outlook(ctx, seen, booking, call.now), hints),
        }


def _check_series(
    session: Session,
    call: Call,
    body: Check,
    booking: Booking,
    where: view.Place,
    holder: view.Holder,
    hints: answers.Hints,
) -> dict[str, Any]:
    assert body.repeat is not None
    try:
        repeat = body.repeat.repeat()
        judged, seen = series.judge(session, call.ctx, where, booking, holder, call.actor, call.now, repeat)
    except RepeatError as err:
        return _refused([problem(err.field, "bad_repeat", words_of(err))])
    wanted = [o for o in judged if not o.skipped]
    refused = [o for o in wanted if o.status == "refused"] if wanted else judged
    clashing = list({r.id: r for o in judged for r in o.clashes}.values())
    first = next((o.booking for o in judged if o.clashes), None)
    pending = any(o.status == "pending" for o in wanted)
    status = "refused" if refused else "pending" if pending else "approved"
    if moved := sum(o.window.moved for o in judged):
        message = say("On %(days)s of the days the clocks skip the start: it is as much later.", days=moved)
        hints.append({"code": "start_moved", "message": message})
    if skipped := len(judged) - len(wanted):
        hints.append(
            {
                "code": "skips",
                "message": say("%(skipped)s of %(all)s clash and are left out.", skipped=skipped, all=len(judged)),
            }
        )
    hints += [*answers.status_hints(status), *answers.away(call, where)]
    return {
        **_NOTHING,
        "problems": [series.on_day(p, o.window).shape() for o in refused for p in o.against],
        "hints": hints,
        "status": status,
        "conflicts": answers.conflicts(session, call, where, clashing),
        "suggestions": refusals.suggest(session, call.ctx, where, first, call.now, None, (holder.id, holder.role))
        if first
        else [],
        "occurrences": [answers.occurrence(o) for o in judged],
        **answers.limits(call, seen, holder, booking.start),
        **answers.told(view.outlook(call.ctx, seen, booking, call.now), hints),
    }


def change(call: Call) -> dict[str, Any]:
    body = call.body(ReservationChange)
    given = body.model_dump(exclude_unset=True)
    counted: answers.Hints = []
    changes: dict[str, Any] = {k: given[k] for k in ("channel", "kind", "model", "preset") if k in given}
    for field in FIXED:
        if field in given and given[field] is None:
            raise Invalid.field(field, say("must not be null; leave it out to keep it"))
    if "starts_at" in given and not _starts_at(call, body.starts_at):
        changes["start"], moved = effective_start(body.starts_at, call.now)
        counted = answers.counted(moved and body.starts_at is not None)
    if "ends_at" in given:
        changes["end"] = body.ends_at
    extras = act.Extras(body.note, body.participants, body.holder)
    row = act.edit(call.ctx, call.actor, call.now, call.args["id"], body.version, changes, extras, body.reason)
    with call.ctx.store.read() as session:
        return answers.whole(session, call, row, counted)


def _starts_at(call: Call, start: int | None) -> bool:
    """Whether that is when the booking starts anyway: a start that has just passed and is sent back is not moved to now."""
    with call.ctx.store.read() as session:
        row = reservations.get(session, call.args["id"])
    return row is not None and row.starts_at == start


def _replaced(session: Session, call: Call, reservation_id: str | None) -> Reservation | None:
    if reservation_id is None:
        return None
    row = reservations.get(session, reservation_id)
    if row is None:
        raise refusals.unfit(
            "replaces",
            "unknown_booking",
            say("there is no booking %(id)s", id=repr(reservation_id)),
        )
    people.need(call.actor, "reservation.change", row)
    return row


def _refused(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_NOTHING, "problems": found}


def _channel_id(session: Session, full_name: str | None) -> str | None:
    if full_name is None:
        return None
    found = channels.by_full_name(session, full_name)
    if found is None:
        raise Invalid.field(
            "channel", say("there is no channel %(channel)s; name it node/channel", channel=repr(full_name))
        )
    return found[0].id


def _holder_id(session: Session, call: Call, holder: str | None) -> str | None:
    if holder is None:
        return None
    if holder == "me":
        return call.actor.id
    user = users.find(session, holder)
    if user is None:
        raise Invalid.field("holder", say("there is nobody with the id or name %(name)s", name=repr(holder)))
    call.need("reservation.holder", HolderName(user.id, call.ctx.settings.show_holders))
    return user.id


_CONFLICT = {409: "The time is taken (`conflicts`, `suggestions`), or the booking was changed meanwhile"}
_CHANGE = {404: "No such booking", **_CONFLICT}
ROUTES = (
    Route("GET", "/reservations", list_reservations, "Bookings that touch a window, by start", query=Listing),
    Route("GET", "/reservations/<id>", one_reservation, "A booking", answers={404: "No such booking"}),
    Route("POST", "/reservations", create, "Books", body=NewReservation, status=201, answers=_CONFLICT),
    Route("POST", "/reservations/check", check, "What booking (or, with `replaces`, changing) would say; writes nothing",
          body=Check),
    Route("PATCH", "/reservations/<id>", change, "Changes a booking", body=ReservationChange, answers=_CHANGE),
)  # fmt: skip
