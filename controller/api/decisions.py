"""What happens to a booking that is there: extended, ended, cancelled and not after all, approved, rejected; requests also
several at once."""

from __future__ import annotations

from typing import Any

from controller.api import booking_answers as answers
from controller.api.booking_bodies import Act, Decision, Ending, Extension, Move
from controller.api.route import Call, Route
from controller.booking import act, moving, series
from controller.booking.uncancel import uncancel as taken_back
from controller.errors import ApiError, Invalid
from controller.said import say
from controller.store.tables import Reservation


def extend(call: Call) -> dict[str, Any]:
    body = call.body(Extension)
    if (body.ends_at is None) == (body.minutes is None):
        raise Invalid.field("minutes", say("say either minutes or ends_at"))
    row = act.extend(
        call.ctx, call.actor, call.now, call.args["id"], body.ends_at, body.minutes, body.reason, body.version
    )
    return _answer(call, row)


def end(call: Call) -> dict[str, Any]:
    body = call.body(Ending)
    if body.scope == "this":
        return _answer(call, act.end(call.ctx, call.actor, call.now, call.args["id"], body.reason))
    rows = series.end(call.ctx, call.actor, call.now, call.args["id"], body.scope, body.reason)
    with call.ctx.store.read() as session:
        shape = answers.shaper(session, call, rows)
        this = next((r for r in rows if r.id == call.args["id"]), rows[0])
        return {**answers.whole(session, call, this), "changed": [shape(r) for r in rows]}


def uncancel(call: Call) -> dict[str, Any]:
    return _answer(call, taken_back(call.ctx, call.actor, call.now, call.args["id"], call.body(Act).reason))


def move(call: Call) -> dict[str, Any]:
    body = call.body(Move)
    row, ended = moving.move(call.ctx, call.actor, call.now, call.args["id"], body.channel, body.version, body.reason)
    return {**_answer(call, row), "moved_from": ended}


def approve(call: Call) -> dict[str, Any]:
    row = act.decide(call.ctx, call.actor, call.now, call.args["id"], True, call.body(Act).reason)
    return _answer(call, row)


def reject(call: Call) -> dict[str, Any]:
    row = act.decide(call.ctx, call.actor, call.now, call.args["id"], False, call.body(Act).reason)
    return _answer(call, row)


def decide(call: Call) -> dict[str, Any]:
    """Each by itself: one that cannot be decided keeps none of the others."""
    body = call.body(Decision)
    if not body.approve and not body.reason.strip():
        raise Invalid.field("reason", say("say why, the requesters will read it"))
    items: list[dict[str, Any]] = []
    for one in dict.fromkeys(body.ids):
        try:
            row = act.decide(call.ctx, call.actor, call.now, one, body.approve, body.reason)
            items.append({"id": one, "status": row.status, "error": None})
        except ApiError as err:
            items.append({"id": one, "status": None, **err.body()})
    return {"items": items, "decided": sum(i["error"] is None for i in items)}


def _answer(call: Call, row: Reservation) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        return answers.whole(session, call, row)


_CHANGE = {
    404: "No such booking",
    409: "The time is taken (`conflicts`, `suggestions`), or the booking was changed or decided meanwhile",
}
ROUTES = (
    Route("POST", "/reservations/decide", decide, "Approves or rejects several requests, each by itself", body=Decision,
          action="reservation.decide"),
    Route("POST", "/reservations/<id>/approve", approve, "Approves a request", body=Act, answers=_CHANGE),
    Route("POST", "/reservations/<id>/reject", reject, "Rejects a request", body=Act, answers=_CHANGE),
    Route("POST", "/reservations/<id>/cancel", end, "Cancels, or ends where it runs", body=Ending, answers=_CHANGE),
    Route("POST", "/reservations/<id>/uncancel", uncancel,
          "Takes a cancellation back, where its time is still free: the same booking", body=Act, answers=_CHANGE),
    Route("POST", "/reservations/<id>/end", end, "Ends now, or cancels before the start", body=Ending, answers=_CHANGE),
    Route("POST", "/reservations/<id>/extend", extend, "Moves the end to later", body=Extension, answers=_CHANGE),
    Route("POST", "/reservations/<id>/move", move,
          "To another channel; one that runs is ended, and its rest begins there as a booking of its own", body=Move,
          answers=_CHANGE),
)  # fmt: skip
