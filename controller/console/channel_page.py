"""A channel's own page, its live parts, and the forms of an administrator: override, default, rules."""

from __future__ import annotations

import json
from typing import Any

from flask import Flask, render_template, request
from flask.typing import ResponseReturnValue

from controller.api import log as log_api
from controller.api import models as models_api
from controller.api import presets as presets_api
from controller.api.route import Page
from controller.console import advice, channel_data, channel_past, language, live, rules, shell
from controller.console.asking import ask, everything, page
from controller.console.signed_in import actor_of, person
from controller.context import Context
from controller.errors import ApiError
from controller.rights import Actor

PARTS = ("head", "now", "past", "plan", "override")


def register(app: Flask, ctx: Context) -> None:
    """/channels/<node>/<name> and its live parts."""
    app.jinja_env.filters["spoken"] = advice.spoken

    @page(app, ctx, "/channels/<node>/<name>")
    def channel(actor: Actor, node: str, name: str) -> ResponseReturnValue:
        hours = _range()
        view = channel_data.build(ctx, actor, ctx.clock(), language.chosen_zone(), node, name, hours)
        parts = render_parts(view)
        return render_template(
            "console/channel.html",
            view=view,
            c=view.shape,
            full=view.shape["id"],
            parts=parts,
            hashes=json.dumps({k: live.part_hash(v) for k, v in parts.items()}),
            hours=hours,
            choices=choices(ctx, actor, view.shape["id"]),
            rules=rules.lines(view.shape["policy"]),
            fields=rules.fields(view.shape["policy"]) if view.may["configure"] else (),
            roles=rules.ROLES,
            launches=log_launches(ctx, actor, node, name),
        )

    @app.get("/channels/<node>/<name>/live")
    def channel_live(node: str, name: str) -> ResponseReturnValue:
        who = person()
        if who is None:
            return live.signed_out()
        actor, now, hours, zone = actor_of(who), ctx.clock(), _range(), language.chosen_zone()

        def make() -> tuple[live.Parts, int]:
            view = channel_data.build(ctx, actor, now, zone, node, name, hours)
            return {**render_parts(view), **shell.parts(ctx, actor, now)}, view.until

        return live.answer(ctx, actor, ("channel", node, name, hours), now, make)


def render_parts(view: channel_data.View) -> live.Parts:
    return {
        f"ch-{name}": render_template(f"console/_channel_{name}.html", view=view, c=view.shape, now=view.now)
        for name in PARTS
    }


def choices(ctx: Context, actor: Actor, channel: str) -> list[dict[str, Any]]:
    """The models that this channel can run, each with its presets: for the forms."""
    models = [m for m in everything(ctx, actor, models_api.list_models, Page) if channel in m["channels"]]
    rows = everything(ctx, actor, presets_api.list_presets, presets_api.PresetPage)
    return [
        {
            "name": m["name"],
            "exceeds": m["exceeds_gpu_memory"].get(channel, False),
            "seconds": m["load_seconds"].get(channel),
            "incomplete": m["incomplete"],
            "presets": [
                p["name"] for p in rows if p["model"] == m["name"] and p["engine"] in m["engines_by_channel"][channel]
            ],
        }
        for m in models
        if m["engines_by_channel"].get(channel)
    ]


def log_launches(ctx: Context, actor: Actor, node: str, name: str) -> list[dict[str, Any]]:
    """The runs whose output is kept, newest first; empty where there is none."""
    try:
        found: list[dict[str, Any]] = ask(ctx, actor, log_api.launches, node=node, name=name)["items"]
    except ApiError:
        return []
    return found


def _range() -> str:
    wanted = request.args.get("range", "")
    return wanted if wanted in channel_past.RANGES else "24h"
