"""How a booking is refused: 422 with `problems[]`, or 409 with what is in the way and the nearest free times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from controller import shapes
from controller.booking import free
from controller.booking.view import Place, find_place
from controller.context import Context
from controller.errors import Conflict, Invalid
from controller.rights import Actor
from controller.said import fault, say
from controller.scheduling.booking_rules import Booking, Problem
from controller.store import audit, channels, reservations, users
from controller.store.tables import Reservation
from controller.times import text_of

SUGGESTED = 5
TURNED_AWAY = "request.turned_away"  # audit: somebody wanted the time that a request holds


class Overlap(Exception):
    """Another booking holds the time."""


def refused(found: list[Problem]) -> Invalid:
    """422 with every problem."""
    details: dict[str, Any] = {}
    for problem in found:
        details.setdefault(problem.field, problem.message)
    first = found[0]
    words = first.message if first.message.startswith(first.field) else fault(first.field, first.message)
    return Invalid(words, details=details, problems=[p.shape() for p in found])


def unfit(field: str, code: str, message: str) -> Invalid:
    """422 with one problem."""
    return refused([Problem(field, code, message)])


def conflict(
    ctx: Context, actor: Actor, now: int, channel: str, wishes: Sequence[Booking], besides: str | None
) -> Conflict:
    """409, looked up anew: what overlaps now, and where the same booking (the first of several that clashes) would fit.
    Somebody who is turned away by a request that nobody has decided yet is noted: its approver is shown them."""
    with ctx.store.read() as session:
        place = find_place(session, channel)
        if place is None:
            return Conflict(say("the channel is booked at that time"), conflicts=[], suggestions=[])
        rows = overlapping(session, place, wishes, besides)
        names = users.names(session, shapes.people_of(rows))
        show = ctx.settings.show_holders
        conflicts = [{**shapes.brief(r, names, actor, show, now), "channel": place.full_name} for r in rows]
        clash = next((w for w in wishes if any(clashes(w, r) for r in rows)), wishes[0])
        suggestions = suggest(session, ctx, place, clash, now, besides, (actor.id, actor.role))
        old = reservations.get(session, besides) if besides else None
    _turned_away(ctx, actor, now, [(w, r) for r in rows for w in wishes if clashes(w, r)])
    return Conflict(
        say("%(channel)s is booked at that time; take another time or another channel", channel=place.full_name),
        details=_where(old, place, clash, rows),
        conflicts=conflicts,
        suggestions=suggestions,
    )


def _where(old: Reservation | None, place: Place, wish: Booking, rows: list[Reservation]) -> dict[str, Any]:
    """The field to blame. One that grows at its end alone is told how long it could be at most."""
    grows = old is not None and (old.channel_id, old.starts_at) == (place.channel.id, wish.start)
    if not grows or not rows:
        return {"starts_at": say("overlaps another booking")}
    return {"ends_at": say("overlaps another booking"), "free_until": text_of(min(r.starts_at for r in rows))}


def overlapping(session: Session, place: Place, wishes: Sequence[Booking], besides: str | None) -> list[Reservation]:
    """What is in the way of any of these."""
    start, end = min(w.start for w in wishes), max(w.end for w in wishes)
    rows = reservations.holding_in(session, [place.channel.id], start, end, besides)
    return [r for r in rows if any(clashes(w, r) for w in wishes)]


def clashes(wish: Booking, row: Reservation) -> bool:
    return row.starts_at < wish.end and wish.start < row.ends_at


def _turned_away(ctx: Context, actor: Actor, now: int, pairs: list[tuple[Booking, Reservation]]) -> None:
    waiting = {r.id: w for w, r in pairs if r.status == "pending" and r.holder_id != actor.id}
    if not waiting:
        return
    with ctx.store.write() as session:
        for request, wish in waiting.items():
            after = {"starts_at": wish.start, "ends_at": wish.end}
            audit.add(session, actor.id, TURNED_AWAY, request, now, after=after)


def suggest(
    session: Session,
    ctx: Context,
    place: Place,
    booking: Booking,
    now: int,
    besides: str | None,
    person: tuple[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The nearest windows on the same channel first, then at that time elsewhere, where the person may book."""
    length = booking.end - booking.start
    wish = free.Wish(booking.kind, booking.model, booking.preset, length, booking.start, person)
    found = free.ranked(session, ctx, wish, now, besides=besides, each=2)
    here = [w for w in found if w.channel == place.full_name]
    elsewhere: dict[str, free.Window] = {}
    for window in found:
        if window.channel != place.full_name:
            elsewhere.setdefault(window.channel, window)
    return [w.shape() for w in [*here, *elsewhere.values()][:SUGGESTED]]


def place_of(session: Session, row: Reservation) -> Place | None:
    """Where a booking is, also on a channel that is gone."""
    found = channels.by_id(session, row.channel_id)
    return Place(*found) if found else None


def record(row: Reservation) -> dict[str, Any]:
    """A booking as the audit trail keeps it."""
    names = ("channel_id", "kind", "model", "preset", "starts_at", "ends_at", "status", "holder_id", "participants")
    return {name: getattr(row, name) for name in (*names, "version")} | (
        {"maintenance": True} if row.maintenance else {}
    )
