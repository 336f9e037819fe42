"""The engine's own output as a page: the end of it, of any launch that is kept. The rights are the API's."""

from __future__ import annotations

from flask import Flask, redirect, render_template, request
from flask.typing import ResponseReturnValue

from controller.api import log as api
from controller.api.route import Call
from controller.console.signed_in import actor_of, person
from controller.context import Context
from controller.errors import NotFound
from controller.store import channels
from controller.terminal_text import readable

TAIL = 64_000


def register(app: Flask, ctx: Context) -> None:
    """/log/<node>/<name>?launch=…"""

    @app.get("/log/<node>/<name>")
    def log_page(node: str, name: str) -> ResponseReturnValue:
        who = person()
        if who is None:
            return redirect(f"/login?next={request.path}")
        with ctx.store.read() as db:
            if channels.find(db, node, name) is None:
                raise NotFound(f"there is no channel {node}/{name}")
        launches = ctx.logs.launches(node, name) if ctx.logs else []
        wanted = request.args.get("launch", "current")[:64]
        chosen = next((one for one in launches if one["id"] == wanted), launches[0] if launches else None)
        text, start = "", 0
        if chosen is not None:
            part = api.Part(offset=-TAIL, limit=TAIL, launch=chosen["id"])
            found = api.read(Call(ctx, actor_of(who), ctx.clock(), {"node": node, "name": name}, _query=part))
            text, start = readable(found["text"]), found["offset"]
        return render_template(
            "console/log.html", channel=f"{node}/{name}", launches=launches[:12], chosen=chosen, text=text, start=start
        )
