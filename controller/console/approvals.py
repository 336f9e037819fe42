"""The approver's inbox: what waits, what each request blocks and for how long, what its requester uses otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import Flask, render_template
from flask.typing import ResponseReturnValue

from controller.api import bookings as api
from controller.api.booking_bodies import Listing
from controller.console import asking, live, shell, trail
from controller.console.signed_in import actor_of, person
from controller.context import Context
from controller.rights import Actor, may
from controller.store import channels, reservations, users
from controller.store.tables import Reservation
from controller.times import parse

SOON_MS = 4 * 3_600_000
GOOD_FOR_MS = 60_000
DECIDED = 12


@dataclass(frozen=True, slots=True)
class Request:
    """`b` is the booking as REST answers it, with `request`. `limit` = hours a week, None = no such limit."""

    b: dict[str, Any]
    start: int
    end: int
    asked: int
    mine: bool
    soon: bool
    hours: float
    limit: float | None
    away: list[tuple[str, int, int]]

    @property
    def over(self) -> list[str]:
        found: list[str] = self.b["request"]["over_limits"]
        return found

    @property
    def requester(self) -> dict[str, Any]:
        found: dict[str, Any] = self.b["request"]["requester"]
        return found


@dataclass(frozen=True, slots=True)
class Decided:
    id: str
    entry: trail.Entry
    who: str
    channel: str
    start: int
    end: int


def register(app: Flask, ctx: Context) -> None:
    """/approvals and its live part."""

    @asking.page(app, ctx, "/approvals", action="reservation.decide")
    def page(actor: Actor) -> ResponseReturnValue:
        now = ctx.clock()
        parts = {**_parts(ctx, actor, now), **shell.parts(ctx, actor, now)}
        with ctx.store.read() as db:
            others = [
                u.name for u in users.page(db, 1000)
                if u.role in ("approver", "admin") and u.disabled_at is None and u.id != actor.id
            ]  # fmt: skip
        return render_template("console/approvals.html", parts=parts, hashes=live.hashes(parts), others=others[:3])

    @app.get("/approvals/live")
    def approvals_live() -> ResponseReturnValue:
        who = person()
        if who is None or not may(actor_of(who), "reservation.decide"):
            return live.signed_out()
        actor, now = actor_of(who), ctx.clock()

        def make() -> tuple[live.Parts, int]:
            return {**_parts(ctx, actor, now), **shell.parts(ctx, actor, now)}, now + GOOD_FOR_MS

        return live.answer(ctx, actor, ("approvals",), now, make)


def waiting(ctx: Context, actor: Actor, now: int) -> list[Request]:
    """By start."""
    shapes = asking.everything(ctx, actor, api.list_reservations, Listing, most=500, status="pending")
    if len(shapes) == 1:  # a list of one carries no `request`
        shapes = [asking.ask(ctx, actor, api.one_reservation, id=shapes[0]["id"])]
    limits = _limits(ctx, {b["channel"] for b in shapes if b["channel"]})
    found = []
    for b in shapes:
        if "request" not in b:
            continue
        start, end = parse(b["starts_at"]), parse(b["ends_at"])
        away = [(w["who"] or "", parse(w["starts_at"]), parse(w["ends_at"])) for w in b["request"]["turned_away"]]
        asked = parse(b["request"]["since"])
        hours = (end - start) / 3_600_000
        limit = limits.get(b["channel"])
        found.append(Request(b, start, end, asked, b["mine"], start - now < SOON_MS, hours, limit, away))
    return found


def _limits(ctx: Context, names: set[str]) -> dict[str, float | None]:
    """The hours a week that one person may hold of each of these channels."""
    with ctx.store.read() as db:
        rows = {name: channels.by_full_name(db, name) for name in names}
        return {name: row[0].policy.get("max_hours_week") for name, row in rows.items() if row is not None}


def decided(ctx: Context, actor: Actor) -> list[Decided]:
    """The latest decisions."""
    with ctx.store.read() as db:
        lately = trail.decisions(db, ctx, actor, DECIDED)
        rows: dict[str, Reservation] = {}
        for one, _entry in lately:
            if (row := reservations.get(db, one)) is not None:
                rows[one] = row
        places = channels.places(db, {r.channel_id for r in rows.values()})
        names = users.names(db, [r.holder_id for r in rows.values()])
        return [
            Decided(
                one, entry, names.get(rows[one].holder_id, ""), places.get(rows[one].channel_id, ("", None))[0],
                rows[one].starts_at, rows[one].ends_at,
            )
            for one, entry in lately
            if one in rows
        ]  # fmt: skip


def _parts(ctx: Context, actor: Actor, now: int) -> live.Parts:
    requests = waiting(ctx, actor, now)
    return {
        "requests": render_template("console/_requests.html", requests=requests),
        "decided": render_template("console/_decided.html", decided=decided(ctx, actor)),
    }
