"""The wall display: every channel on one screen, without log-in, by a secret link that an administrator makes and revokes.

It shows no names, notes or people unless SLOTSERVE_SHOW_HOLDERS is `everyone`; there is nothing on it to press.
"""

from __future__ import annotations

import dataclasses
import json

from flask import Flask, render_template, request
from flask.typing import ResponseReturnValue

from controller.console import language, live, overview
from controller.context import Context
from controller.errors import NotFound, TooMany
from controller.rights import Actor
from controller.said import say
from controller.store import links
from controller.store.tables import SecretLink
from controller.throttle import Throttle

NOBODY = Actor("", "", "user", "link")
_wrong = Throttle(free=20)


def register(app: Flask, ctx: Context) -> None:
    """/wall/<secret> and its live parts."""
    shown = ctx.settings.show_holders
    settings = ctx.settings.model_copy(update={"show_holders": "everyone" if shown == "everyone" else "admins"})
    blind = dataclasses.replace(ctx, settings=settings)

    @app.get("/wall/<secret>")
    def wall(secret: str) -> ResponseReturnValue:
        link = _link(ctx, secret)
        view = overview.build(blind, NOBODY, ctx.clock(), language.chosen_zone())
        parts = _parts(view)
        theme = request.args.get("theme", "")
        return render_template(
            "console/wall.html",
            view=view,
            parts=parts,
            name=link.name,
            secret=secret,
            theme=theme if theme in ("light", "dark") else "",
            hashes=json.dumps({k: live.part_hash(v) for k, v in parts.items()}),
        )

    @app.get("/wall/<secret>/live")
    def wall_live(secret: str) -> ResponseReturnValue:
        link = _link(ctx, secret)
        now, zone = ctx.clock(), language.chosen_zone()

        def make() -> tuple[live.Parts, int]:
            view = overview.build(blind, NOBODY, now, zone)
            return _parts(view), view.until

        return live.answer(ctx, NOBODY, ("wall", link.id), now, make)


def _parts(view: overview.Overview) -> live.Parts:
    parts = {f"w-{row.anchor}": render_template("console/_wall_tile.html", row=row, view=view) for row in view.rows}
    return {"w-head": render_template("console/_wall_head.html", view=view), **parts}


def _link(ctx: Context, secret: str) -> SecretLink:
    """The link, its use noted. Unknown, revoked and of a disabled person look the same."""
    address, now = f"wall {request.remote_addr}", ctx.clock()
    if (wait := _wrong.wait(address)) > 0:
        raise TooMany(say("too often; try again in %(wait)s s", wait=int(wait) + 1))
    with ctx.store.read() as db:
        found = links.resolve(db, secret, "wall")
    if found is None:
        _wrong.failed(address)
        raise NotFound(say("there is no such wall display: its link was revoked, or the address is incomplete"))
    link = found[0]
    if links.stale(link, now):
        with ctx.store.write() as db:
            links.used(db, link.id, now)
    return link
