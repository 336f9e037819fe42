"""The engine's own output as a page of its own: the end of it, of any launch that is kept. The rights are the API's.

The page carries the end of the run that was asked for; static/log.js goes on from there (follows, scrolls, searches).
"""

from __future__ import annotations

from flask import Flask, render_template, request
from flask.typing import ResponseReturnValue

from controller.api import log as api
from controller.console.asking import ask, page
from controller.context import Context
from controller.rights import Actor
from controller.terminal_text import readable

TAIL = 64_000


def register(app: Flask, ctx: Context) -> None:
    """/log/<node>/<name>?launch=…"""

    @page(app, ctx, "/log/<node>/<name>")
    def log_page(actor: Actor, node: str, name: str) -> ResponseReturnValue:
        launches = ask(ctx, actor, api.launches, node=node, name=name)["items"]
        wanted = request.args.get("launch", "current")[:64]
        chosen = next((one for one in launches if one["id"] == wanted), launches[0] if launches else None)
        text = ""
        if chosen is not None:
            part = api.Part(offset=-TAIL, limit=TAIL, launch=chosen["id"], lines=False)
            text = readable(ask(ctx, actor, api.read, part, node=node, name=name)["text"])
        return render_template("console/log.html", full=f"{node}/{name}", launches=launches, chosen=chosen, text=text)
