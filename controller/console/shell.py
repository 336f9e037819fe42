"""What stands around every page and changes by itself: how many requests wait for the viewer, how many notices are new."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, render_template
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from controller.console import live, nav
from controller.console.kept import Kept
from controller.console.signed_in import actor_of, context, person
from controller.context import Context
from controller.rights import Actor, may
from controller.store import notifications
from controller.store.tables import Reservation

GOOD_FOR_MS = 60_000


@dataclass(frozen=True, slots=True)
class Figures:
    """0 = nothing is shown."""

    approvals: int = 0
    notices: int = 0


def register(app: Flask, ctx: Context) -> None:
    """/live/shell, polled slowly by pages that have no live parts of their own."""

    @app.get("/live/shell")
    def live_shell() -> ResponseReturnValue:
        who = person()
        if who is None:
            return live.signed_out()
        actor, now = actor_of(who), ctx.clock()
        return live.answer(ctx, actor, ("shell",), now, lambda: (parts(ctx, actor, now), now + GOOD_FOR_MS))


def parts(ctx: Context, actor: Actor, now: int) -> live.Parts:
    """The shell's live parts; every page's live answer carries them as well."""
    seen = figures(ctx, actor, now)
    return {
        name: render_template("console/_badge.html", count=getattr(seen, name), name=name)
        for name in ("approvals", "notices")
        if name != "approvals" or may(actor, "reservation.decide")
    }


def pieces(ctx: Context, actor: Actor, now: int, state: tuple[object, ...]) -> dict[str, tuple[str, str]]:
    """The same with their marks, kept while `state` (the store's revision, the language) is the same."""

    def make() -> dict[str, tuple[str, str]]:
        return {name: (live.part_hash(html), html) for name, html in parts(ctx, actor, now).items()}

    kept: Kept = ctx.once("console.shell", lambda: Kept(1024))
    found: dict[str, tuple[str, str]] = kept.get((state, now // GOOD_FOR_MS, actor.id, actor.role), make)
    return found


def figures(ctx: Context, actor: Actor, now: int) -> Figures:
    with ctx.store.read() as db:
        waiting = 0
        if may(actor, "reservation.decide"):
            query = select(func.count()).where(Reservation.status == "pending", Reservation.ends_at > now)
            waiting = int(db.scalar(query) or 0)
        return Figures(waiting, notifications.unread(db, actor.id))


def shown() -> dict[str, object]:
    """What base.html needs of the shell; empty for who has not signed in."""
    who = person()
    if who is None:
        return {}
    ctx = context()
    return {
        "entries": nav.entries(who.role),
        "account": nav.ACCOUNT if nav.there(nav.ACCOUNT.path) else None,
        "notices": nav.NOTICES if nav.there(nav.NOTICES.path) else None,
        "figures": figures(ctx, actor_of(who), ctx.clock()),
    }
