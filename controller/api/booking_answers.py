"""How bookings are answered: the booking itself, how it will begin, and what an approver or the holder of a bare card needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from controller import shapes
from controller.api.route import Call
from controller.booking import act, bare_card, calls, offers, refusals, requests, series, view
from controller.booking.series import Occurrence
from controller.said import say
from controller.scheduling.policies import Policy, allowance, sentences
from controller.store import channels, reservations, users
from controller.store.tables import HOLDING, Reservation
from controller.times import text_of

UNTOLD: dict[str, Any] = {"hints": [], "load_seconds": None, "ready_at": None, "exceeds_gpu_memory": False}
Hints = list[dict[str, str]]


def whole(session: Session, call: Call, row: Reservation, hints: Hints | None = None) -> dict[str, Any]:
    """One booking with everything about it."""
    told = _outlook(session, call, row)
    called = calls.of(session, row, call.now) if call.may("reservation.details", row) else None
    told["hints"] = [*(hints or []), *calls.hints(row, called, call.now), *told.get("hints", [])]
    shape = shaper(session, call, [row])(row)
    more: dict[str, Any] = {"offers": _offers(session, call, row) if shape["problem"] else []}
    if called is not None:
        more["calls"] = called
    if row.series_id:
        more["series"] = {"id": row.series_id, "rule": series.rule_of(session, row.series_id)}
    return {**shape, **told, **more}


def _offers(session: Session, call: Call, row: Reservation) -> list[dict[str, Any]]:
    """Channels that fit, for whoever may move the booking there."""
    if not call.may("reservation.change", row):
        return []
    holder = act.holder_of_row(session, row)
    return [o.shape() for o in offers.elsewhere(session, call.ctx, call.actor, holder, row, call.now)]


def new(call: Call, row: Reservation, seen: view.View, hints: Hints) -> dict[str, Any]:
    """One that was just made, by what it was judged by."""
    told = begins(call, row, seen)
    told["hints"] = [*hints, *told["hints"]]
    show = call.ctx.settings.show_holders
    return {**shapes.reservation(row, seen.place.full_name, _names(call, row), call.actor, show, call.now), **told}


def shaper(session: Session, call: Call, rows: list[Reservation]) -> Any:
    """The function that makes an answer of each of these rows."""
    names = users.names(session, shapes.people_of(rows))
    where = channels.places(session, {r.channel_id for r in rows})
    asked = requests.describe(session, call.ctx.settings, call.actor, rows, call.now)
    show = call.ctx.settings.show_holders
    nowhere = ("", None)

    def shape(r: Reservation) -> dict[str, Any]:
        name, lost = where.get(r.channel_id, nowhere)
        made = shapes.reservation(r, name, names, call.actor, show, call.now, lost)
        return {**made, "request": asked[r.id]} if r.id in asked else made

    return shape


def begins(call: Call, row: Reservation, seen: view.View) -> dict[str, Any]:
    """How a booking begins, of what was seen."""
    where = seen.place
    if where.channel.gone_at is not None:
        message = say("The channel is no longer there: this booking cannot be served.")
        return {**UNTOLD, "hints": [{"code": "channel_gone", "message": message}]}
    hints = [*status_hints(row.status), *away(call, where)]
    card = {}
    if row.kind == "exclusive" and call.may("reservation.details", row):
        card = {"bare_card": bare_card.card(call.ctx.live, where)}
    found = view.outlook(call.ctx, seen, view.booking_of(row), call.now)
    return {**UNTOLD, "hints": hints, **told(found, hints), **card}


def told(outlook: Any, hints: Hints) -> dict[str, Any]:
    """An outlook as answers carry it, its hints after those that are known."""
    if outlook is None:
        return {}
    return {
        "load_seconds": outlook.load_seconds,
        "ready_at": text_of(outlook.ready_at),
        "exceeds_gpu_memory": outlook.exceeds_gpu_memory,
        "hints": [*hints, *({"code": h.code, "message": str(h)} for h in outlook.hints)],
    }


def counted(yes: bool) -> Hints:
    message = say("starts_at was up to a minute in the past: it counts as now.")
    return [{"code": "counts_as_now", "message": message}] if yes else []


def status_hints(status: str) -> Hints:
    message = say("This booking waits for an approver; it holds the time until then.")
    return [{"code": "needs_approval", "message": message}] if status == "pending" else []


def away(call: Call, where: view.Place) -> Hints:
    if call.ctx.live.node(where.node.name).online:
        return []
    message = say("Node %(node)s is away at present: what it runs cannot be seen from here.", node=where.node.name)
    return [{"code": "node_away", "message": message}]


def conflicts(session: Session, call: Call, where: view.Place, rows: Sequence[Reservation]) -> list[dict[str, Any]]:
    """What is in the way, as far as the person may see it."""
    names, show = users.names(session, shapes.people_of(list(rows))), call.ctx.settings.show_holders
    return [{**shapes.brief(r, names, call.actor, show, call.now), "channel": where.full_name} for r in rows]


def occurrence(each: Occurrence) -> dict[str, Any]:
    """One window of a repeated booking as it is judged before it is made."""
    return {
        "starts_at": text_of(each.booking.start),
        "ends_at": text_of(each.booking.end),
        "moved": each.window.moved,
        "status": "skipped" if each.skipped else each.status,
        "problems": [p.shape() for p in each.against],
        "conflicts": [r.id for r in each.clashes],
    }


def limits(call: Call, seen: view.View, holder: view.Holder, start: int) -> dict[str, Any]:
    """The policy before somebody tries: in sentences, and what is left of the hours."""
    policy: Policy = seen.policy
    left = allowance(policy, seen.facts.taken, call.now, start)
    said = sentences(policy, left, policy.admits(holder.id, holder.role))
    return {
        "policy": [{"code": h.code, "message": str(h)} for h in said],
        "hours": {
            "held": round(left.held, 2),
            "held_limit": left.held_limit,
            "week": round(left.week, 2),
            "week_limit": left.week_limit,
            "week_from": text_of(left.week_start),
        },
    }


def _outlook(session: Session, call: Call, row: Reservation) -> dict[str, Any]:
    """How a booking that still holds its time begins."""
    where = refusals.place_of(session, row)
    if where is None or reservations.status_at(row, call.now) not in HOLDING:
        return dict(UNTOLD)
    seen = view.look(session, call.ctx.settings, where, view.booking_of(row), call.now, None, row.id)
    return begins(call, row, seen)


def _names(call: Call, row: Reservation) -> dict[str, str]:
    """Of the people of a booking; who books for nobody but themselves is known already."""
    ids = shapes.people_of([row]) - {None}
    if ids == {call.actor.id}:
        return {call.actor.id: call.actor.name}
    with call.ctx.store.glance() as session:
        return users.names(session, ids)
