"""Reservations: make, look, list, change, decide. The work is done in controller/booking; here are bodies and answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from sqlalchemy.orm import Session

from controller import shapes
from controller.api.route import Body, Call, Page, Route, cursor, listed, place
from controller.booking import act, refusals, view
from controller.errors import Forbidden, Invalid, NotFound
from controller.rights import HolderName
from controller.scheduling.booking_rules import Booking, effective_start, problems, standing
from controller.store import channels, reservations, users
from controller.store.tables import Reservation
from controller.times import Instant, Start, text_of

Kind = Literal["model", "exclusive"]


def _filled(text: str | None) -> str | None:
    return text or None


Name = Annotated[str | None, Field(max_length=512), AfterValidator(_filled)]
Preset = Annotated[str | None, Field(max_length=200), AfterValidator(_filled)]
Note = Annotated[str, Field(max_length=4000)]
Reason = Annotated[str, Field(max_length=2000)]
People = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]


class NewReservation(Body):
    channel: str = Field(max_length=200, description="node/channel")
    kind: Kind = "model"
    model: Name = None
    preset: Preset = None
    starts_at: Start = Field(None, description='Missing or "now": at once')
    ends_at: Instant
    note: Note | None = None
    participants: People | None = Field(None, description="Ids or names of people who may call as well")
    holder: str | None = Field(None, max_length=200, description="For somebody else (administrators): id or name")


class ReservationChange(Body):
    version: Version
    channel: str | None = Field(None, max_length=200)
    kind: Kind | None = None
    model: Name = None
    preset: Preset = None
    starts_at: Start = None
    ends_at: Instant | None = None
    note: Note | None = None
    participants: People | None = None
    holder: str | None = Field(None, max_length=200)
    reason: Reason = ""


class Act(Body):
    reason: Reason = Field("", description="Needed to reject, and for somebody else's booking")


class Extension(Act):
    ends_at: Instant | None = None
    minutes: float | None = Field(None, gt=0, le=527_040, allow_inf_nan=False)
    version: Version | None = None


class Listing(Page):
    start: Instant | None = Field(None, alias="from")
    end: Instant | None = Field(None, alias="to")
    channel: str | None = Field(None, max_length=200)
    holder: str | None = Field(None, max_length=200, description="Id or name; `me`")
    status: (
        Literal["pending", "approved", "rejected", "expired", "cancelled", "ended_early", "finished", "running"] | None
    ) = None


def list_reservations(call: Call) -> dict[str, Any]:
    query = call.query(Listing)
    after = place(query.cursor, int, str)
    if query.start is not None and query.end is not None and query.start >= query.end:
        raise Invalid.field("to", "must be later than `from`")
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
        )
        shape = _shaper(session, call, rows)
    return listed(rows, query.limit, shape, lambda r: cursor(r.starts_at, r.id))


def one_reservation(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        row = reservations.get(session, call.args["id"])
        if row is None:
            raise NotFound(f"there is no booking {call.args['id']}")
        return {**_shaper(session, call, [row])(row), **_outlook(session, call, row)}


def create(call: Call) -> dict[str, Any]:
    body = call.body(NewReservation)
    booking, counted = _booking(body, call.now)
    extras = act.Extras(body.note, body.participants, body.holder)
    row, seen = act.create(call.ctx, call.actor, call.now, body.channel, booking, extras)
    told = _begins(call, row, seen)
    told["hints"] = [*counted, *told["hints"]]
    return {
        **shapes.reservation(
            row, seen.place.full_name, _names(call, row), call.actor, call.ctx.settings.show_holders, call.now
        ),
        **told,
    }


def _names(call: Call, row: Reservation) -> dict[str, str]:
    """Of the people of a booking; who books for nobody but themselves is known already."""
    ids = shapes.people_of([row]) - {None}
    if ids == {call.actor.id}:
        return {call.actor.id: call.actor.name}
    with call.ctx.store.glance() as session:
        return users.names(session, ids)


def check(call: Call) -> dict[str, Any]:
    body, ctx = call.body(NewReservation), call.ctx
    booking, counted = _booking(body, call.now)
    nothing = {"load_seconds": None, "ready_at": None, "exceeds_gpu_memory": False}
    refused: dict[str, Any] = {**nothing, "status": "refused", "conflicts": [], "suggestions": []}
    with ctx.store.read() as session:
        try:
            act.check_people(session, call.actor, body.holder, body.participants or [])
        except Forbidden as err:
            return {"problems": [_problem("holder", "forbidden", err.message)], "hints": [], **refused}
        except Invalid as err:
            return {"problems": err.extra["problems"], "hints": [], **refused}
        where = view.find_place(session, body.channel)
        if where is None:
            message = f"there is no channel {body.channel!r}; name it node/channel"
            return {"problems": [_problem("channel", "unknown_channel", message)], "hints": [], **refused}
        seen = view.look(session, ctx.settings, where, booking)
        found = problems(booking, None, call.actor.role, seen.policy, seen.facts, call.now)
        status = standing(booking, found, call.actor.role, seen.policy)
        passed = [
            {"code": p.code, "message": f"Over a limit, which you may pass: {p.message}."}
            for p in found
            if p.overridable
        ]
        hints = [*counted, *passed, *_status_hints(status), *_away(call, where)]
        outlook = view.outlook(ctx, seen, booking, call.now)
        names = users.names(session, shapes.people_of(list(seen.in_the_way)))
        answer: dict[str, Any] = {
            "problems": [asdict(p) for p in found if not p.overridable],
            "hints": hints,
            **nothing,
            "status": status,
            "conflicts": [
                {**shapes.brief(r, names, call.actor, ctx.settings.show_holders, call.now), "channel": body.channel}
                for r in seen.in_the_way
            ],
            "suggestions": refusals.suggest(session, ctx, where, booking, call.now, None) if seen.in_the_way else [],
        }
        return {**answer, **_told(outlook, hints)}


def change(call: Call) -> dict[str, Any]:
    body = call.body(ReservationChange)
    given = body.model_dump(exclude_unset=True)
    counted: list[dict[str, str]] = []
    changes: dict[str, Any] = {k: given[k] for k in ("channel", "kind", "model", "preset") if k in given}
    for field in ("channel", "kind", "ends_at", "note", "participants", "holder"):
        if field in given and given[field] is None:
            raise Invalid.field(field, "must not be null; leave it out to keep it")
    if "starts_at" in given and not _starts_at(call, body.starts_at):
        changes["start"], moved = effective_start(body.starts_at, call.now)
        counted = _counted(moved and body.starts_at is not None)
    if "ends_at" in given:
        changes["end"] = body.ends_at
    extras = act.Extras(body.note, body.participants, body.holder)
    row = act.edit(call.ctx, call.actor, call.now, call.args["id"], body.version, changes, extras, body.reason)
    return _answer(call, row, counted)


def _starts_at(call: Call, start: int | None) -> bool:
    """Whether that is when the booking starts anyway: a start that has just passed and is sent back is not moved to now."""
    with call.ctx.store.read() as session:
        row = reservations.get(session, call.args["id"])
    return row is not None and row.starts_at == start


def extend(call: Call) -> dict[str, Any]:
    body = call.body(Extension)
    if (body.ends_at is None) == (body.minutes is None):
        raise Invalid.field("minutes", "say either minutes or ends_at")
    row = act.extend(
        call.ctx, call.actor, call.now, call.args["id"], body.ends_at, body.minutes, body.reason, body.version
    )
    return _answer(call, row, [])


def end(call: Call) -> dict[str, Any]:
    row = act.end(call.ctx, call.actor, call.now, call.args["id"], call.body(Act).reason)
    return _answer(call, row, [])


def approve(call: Call) -> dict[str, Any]:
    row = act.decide(call.ctx, call.actor, call.now, call.args["id"], True, call.body(Act).reason)
    return _answer(call, row, [])


def reject(call: Call) -> dict[str, Any]:
    row = act.decide(call.ctx, call.actor, call.now, call.args["id"], False, call.body(Act).reason)
    return _answer(call, row, [])


def _answer(call: Call, row: Reservation, hints: list[dict[str, str]]) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        told = _outlook(session, call, row)
        told["hints"] = [*hints, *told.get("hints", [])]
        return {**_shaper(session, call, [row])(row), **told}


_UNTOLD: dict[str, Any] = {"hints": [], "load_seconds": None, "ready_at": None, "exceeds_gpu_memory": False}


def _outlook(session: Session, call: Call, row: Reservation) -> dict[str, Any]:
    """How a booking that still holds its time begins."""
    where = refusals.place_of(session, row)
    if where is None or reservations.status_at(row, call.now) not in ("pending", "approved"):
        return dict(_UNTOLD)
    return _begins(call, row, view.look(session, call.ctx.settings, where, view.booking_of(row), row.id))


def _begins(call: Call, row: Reservation, seen: view.View) -> dict[str, Any]:
    """The same, of what was seen."""
    where = seen.place
    hints = [*_status_hints(row.status), *_away(call, where)]
    if where.channel.gone_at is not None:
        message = "The channel is no longer there: this booking cannot be served."
        hints = [{"code": "channel_gone", "message": message}]
    return {**_UNTOLD, "hints": hints, **_told(view.outlook(call.ctx, seen, view.booking_of(row), call.now), hints)}


def _told(outlook: Any, hints: list[dict[str, str]]) -> dict[str, Any]:
    if outlook is None:
        return {}
    return {
        "load_seconds": outlook.load_seconds,
        "ready_at": text_of(outlook.ready_at),
        "exceeds_gpu_memory": outlook.exceeds_gpu_memory,
        "hints": [*hints, *({"code": h.code, "message": str(h)} for h in outlook.hints)],
    }


def _booking(body: NewReservation, now: int) -> tuple[Booking, list[dict[str, str]]]:
    start, counted = effective_start(body.starts_at, now)
    return Booking(body.kind, body.model, body.preset, start, body.ends_at), _counted(
        counted and body.starts_at is not None
    )


def _counted(counted: bool) -> list[dict[str, str]]:
    message = "starts_at was up to a minute in the past: it counts as now."
    return [{"code": "counts_as_now", "message": message}] if counted else []


def _status_hints(status: str) -> list[dict[str, str]]:
    message = "This booking waits for an approver; it holds the time until then."
    return [{"code": "needs_approval", "message": message}] if status == "pending" else []


def _away(call: Call, where: view.Place) -> list[dict[str, str]]:
    if call.ctx.live.node(where.node.name).online:
        return []
    message = f"Node {where.node.name} is away at present: what it runs cannot be seen from here."
    return [{"code": "node_away", "message": message}]


def _problem(field: str, code: str, message: str) -> dict[str, Any]:
    return {"field": field, "code": code, "message": message, "overridable": False, "requestable": False}


def _shaper(session: Session, call: Call, rows: list[Reservation]) -> Any:
    names = users.names(session, shapes.people_of(rows))
    where = channels.places(session, {r.channel_id for r in rows})
    show = call.ctx.settings.show_holders
    nowhere = ("", None)

    def shape(r: Reservation) -> dict[str, Any]:
        name, lost = where.get(r.channel_id, nowhere)
        return shapes.reservation(r, name, names, call.actor, show, call.now, lost)

    return shape


def _channel_id(session: Session, full_name: str | None) -> str | None:
    if full_name is None:
        return None
    found = channels.by_full_name(session, full_name)
    if found is None:
        raise Invalid.field("channel", f"there is no channel {full_name!r}; name it node/channel")
    return found[0].id


def _holder_id(session: Session, call: Call, holder: str | None) -> str | None:
    if holder is None:
        return None
    if holder == "me":
        return call.actor.id
    user = users.find(session, holder)
    if user is None:
        raise Invalid.field("holder", f"there is nobody with the id or name {holder!r}")
    call.need("reservation.holder", HolderName(user.id, call.ctx.settings.show_holders))
    return user.id


_CONFLICT = {409: "The time is taken (`conflicts`, `suggestions`), or the booking was changed meanwhile"}
_CHANGE = {404: "No such booking", **_CONFLICT}
ROUTES = (
    Route("GET", "/reservations", list_reservations, "Bookings that touch a window, by start", query=Listing),
    Route("GET", "/reservations/<id>", one_reservation, "A booking", answers={404: "No such booking"}),
    Route("POST", "/reservations", create, "Books", body=NewReservation, status=201, answers=_CONFLICT),
    Route("POST", "/reservations/check", check, "What booking would say; writes nothing", body=NewReservation),
    Route("PATCH", "/reservations/<id>", change, "Changes a booking", body=ReservationChange, answers=_CHANGE),
    Route("POST", "/reservations/<id>/approve", approve, "Approves a request", body=Act, answers=_CHANGE),
    Route("POST", "/reservations/<id>/reject", reject, "Rejects a request", body=Act, answers=_CHANGE),
    Route("POST", "/reservations/<id>/cancel", end, "Cancels, or ends where it runs", body=Act, answers=_CHANGE),
    Route("POST", "/reservations/<id>/end", end, "Ends now, or cancels before the start", body=Act, answers=_CHANGE),
    Route("POST", "/reservations/<id>/extend", extend, "Moves the end to later", body=Extension, answers=_CHANGE),
)  # fmt: skip
