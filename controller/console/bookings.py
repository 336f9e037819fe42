"""My bookings, and one booking's page: what it is, how it goes, how to call it, what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import Flask, render_template, request
from flask.typing import ResponseReturnValue
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from controller.api import bookings as api
from controller.api import feeds as feeds_api
from controller.booking.view import policy_for
from controller.console import asking, language, live, overview, shell, trail
from controller.console.facts import AnyBooking
from controller.console.fleet_facts import fleet
from controller.console.signed_in import actor_of, person
from controller.console.viewer import Booking, Row, Viewer
from controller.context import Context
from controller.rights import Actor, may
from controller.scheduling.policies import HOUR
from controller.store import channels, reservations
from controller.store.tables import HOLDING, Reservation

LATELY = 5
PAGE = 50
MINUTE = 60_000
STEPS = (30 * MINUTE, 60 * MINUTE, 120 * MINUTE, 240 * MINUTE)


@dataclass(frozen=True, slots=True)
class Longer:
    """How far a booking can be extended: the ends to offer, the last of them the longest where there is a limit, and why
    that is: `next` (a booking begins then) or `policy`."""

    ends: tuple[int, ...]
    longest: int | None = None
    why: str = ""
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Past(AnyBooking):
    """A booking that is over."""

    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Mine:
    """The page. `rows` are the channels' rows by name, as on the overview."""

    now: int
    running: list[Booking]
    coming: list[Booking]
    pending: list[Booking]
    invited: list[Booking]
    longer: dict[str, Longer]
    rows: dict[str, Row]
    until: int


def register(app: Flask, ctx: Context) -> None:
    """/bookings, /bookings/past, /bookings/calendar and /bookings/<id>."""

    @asking.page(app, ctx, "/bookings")
    def mine_page(actor: Actor) -> ResponseReturnValue:
        now = ctx.clock()
        view = mine(ctx, actor, now)
        with ctx.store.read() as db:
            past = lately(db, actor, now, LATELY)
        parts = {**_mine_parts(view), **shell.parts(ctx, actor, now)}
        return render_template(
            "console/bookings.html", view=view, past=past, parts=parts, hashes=live.hashes(parts), which="now"
        )

    @app.get("/bookings/live")
    def mine_live() -> ResponseReturnValue:
        who = person()
        if who is None:
            return live.signed_out()
        actor, now = actor_of(who), ctx.clock()

        def make() -> tuple[live.Parts, int]:
            view = mine(ctx, actor, now)
            return {**_mine_parts(view), **shell.parts(ctx, actor, now)}, view.until

        return live.answer(ctx, actor, ("bookings",), now, make)

    @asking.page(app, ctx, "/bookings/past")
    def past_page(actor: Actor) -> ResponseReturnValue:
        now = ctx.clock()
        before = request.args.get("before", type=int)
        with ctx.store.read() as db:
            past = lately(db, actor, now, PAGE + 1, before)
        return render_template("console/bookings.html", past=past[:PAGE], more=len(past) > PAGE, which="past", parts={})

    @asking.page(app, ctx, "/bookings/calendar")
    def calendar_page(actor: Actor) -> ResponseReturnValue:
        feeds = [
            f for f in asking.everything(ctx, actor, feeds_api.list_feeds, feeds_api.FeedPage) if f["kind"] == "feed"
        ]
        with ctx.store.read() as db:
            every = [f"{n.name}/{c.name}" for c, n in channels.page(db, 5000) if c.gone_at is None]
        return render_template("console/bookings.html", feeds=feeds, channels=every, which="calendar", parts={})

    @asking.page(app, ctx, "/bookings/<id>")
    def one_page(actor: Actor, id: str) -> ResponseReturnValue:
        now = ctx.clock()
        parts, facts = _one(ctx, actor, id, now)
        return render_template("console/booking.html", parts=parts, hashes=live.hashes(parts), **facts)

    @app.get("/bookings/<id>/live")
    def one_live(id: str) -> ResponseReturnValue:
        who = person()
        if who is None:
            return live.signed_out()
        actor, now = actor_of(who), ctx.clock()

        def make() -> tuple[live.Parts, int]:
            parts, facts = _one(ctx, actor, id, now)
            return parts, facts["until"]

        return live.answer(ctx, actor, ("booking", id), now, make)


def mine(ctx: Context, actor: Actor, now: int) -> Mine:
    """What the person holds from now on, and what they may call as a participant."""
    seen, viewer = fleet(ctx, now), Viewer(ctx, actor, now, language.chosen_zone())
    channels_of = seen.people.get(actor.id, [])
    by_channel = {c.full_name: [viewer.booking(b) for b in c.bookings] for c in channels_of}
    every = sorted((b for several in by_channel.values() for b in several), key=lambda b: b.start)
    yours = [b for b in every if b.mine and not b.maintenance]
    invited = [b for b in every if b.invited and not b.mine]
    with ctx.store.read() as db:
        longer = {b.id: longest(db, ctx, actor, b, by_channel[b.channel]) for b in yours if b.status == "approved"}
    return Mine(
        now,
        [b for b in yours if b.running],
        [b for b in yours if not b.running and b.status == "approved"],
        [b for b in yours if b.status == "pending"],
        invited,
        longer,
        {c.full_name: viewer.row(c, by_channel[c.full_name]) for c in channels_of},
        seen.until,
    )


def longest(db: Session, ctx: Context, actor: Actor, booking: Booking, on_channel: list[Booking]) -> Longer:
    """By what stands behind it on the channel, and by the channel's longest booking."""
    after = next((b for b in on_channel if b.start >= booking.end and b.id != booking.id), None)
    found = channels.by_full_name(db, booking.channel)
    hours = policy_for(ctx.settings, found[0]).max_hours if found and actor.role != "admin" else None
    limits = []
    if after is not None:
        limits.append((after.start, "next", after.holder if not after.mine else ""))
    if hours is not None:
        limits.append((booking.start + round(hours * HOUR), "policy", ""))
    end, why, holder = min(limits, default=(None, "", ""), key=lambda limit: limit[0])
    ends = [booking.end + step for step in STEPS if end is None or booking.end + step < end]
    if end is not None and end > booking.end:
        ends = [*ends[:3], end]
    return Longer(tuple(ends[:4]), end, why, holder)


def lately(db: Session, actor: Actor, now: int, limit: int, before: int | None = None) -> list[Past]:
    """What is over, the newest first; `before` = a start, where the last page ended."""
    query = (
        select(Reservation)
        .where(
            Reservation.holder_id == actor.id,
            or_(Reservation.status.not_in(HOLDING), Reservation.ends_at <= now),
        )
        .order_by(Reservation.starts_at.desc(), Reservation.id.desc())
        .limit(limit)
    )
    rows = list(db.scalars(query.where(Reservation.starts_at < before) if before is not None else query))
    places = channels.places(db, {r.channel_id for r in rows})
    names = trail.names(db, [r.decided_by for r in rows])
    return [
        Past(
            r.id, places.get(r.channel_id, ("", None))[0], r.kind, r.model, r.preset, r.starts_at,
            min(r.ends_at, r.ended_at) if r.ended_at and r.ended_at > r.starts_at else r.ends_at,
            reservations.status_at(r, now), r.reason or "",
            names.get(r.decided_by or "", "") if r.decided_by != actor.id else "",
        )
        for r in rows
    ]  # fmt: skip


def _mine_parts(view: Mine) -> live.Parts:
    return {"mine": render_template("console/_mine.html", view=view)}


def _one(ctx: Context, actor: Actor, id: str, now: int) -> tuple[live.Parts, dict[str, Any]]:
    """The parts of a booking's page, and what its template needs."""
    told = asking.ask(ctx, actor, api.one_reservation, id=id)
    node, _, name = told["channel"].partition("/")
    view = overview.build(ctx, actor, now, language.chosen_zone(), (node, name))
    row = view.rows[0] if view.rows else None
    on_channel = view.by_channel.get(told["channel"], [])
    booking = next((b for b in on_channel if b.id == id), None)
    with ctx.store.read() as db:
        stored = reservations.get(db, id)
        details = stored is not None and bool(may(actor, "reservation.details", stored))
        history = trail.of_booking(db, ctx, actor, id) if details else []
        longer = None
        if booking is not None and booking.status == "approved":
            longer = longest(db, ctx, actor, booking, on_channel)
    facts = {
        "b": told, "id": id, "booking": booking, "row": row, "details": details, "view": view, "until": view.until,
        "longer": longer, "start": stored.starts_at if stored else 0, "end": stored.ends_at if stored else 0,
        "ended": stored.ended_at if stored else None, "asked": stored.created_at if stored else 0,
        "may_change": stored is not None and bool(may(actor, "reservation.change", stored)),
        "may_decide": told["status"] == "pending" and bool(may(actor, "reservation.decide")),
    }  # fmt: skip
    parts = {
        "head": render_template("console/_booking_head.html", **facts),
        "state": render_template("console/_booking_state.html", **facts),
        "history": render_template("console/_booking_history.html", history=history, **facts),
        **shell.parts(ctx, actor, now),
    }
    return parts, facts
