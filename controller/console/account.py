"""One's own account: keys, language and zone, sessions, what one is told and how; and the notices themselves."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from flask import Flask, render_template, request
from flask.typing import ResponseReturnValue
from flask_babel import get_locale
from flask_babel import gettext as _

from controller.api import keys as keys_api
from controller.api import notice_choice, sign_ins
from controller.api import people as people_api
from controller.api import targets as targets_api
from controller.api.route import cursor, place
from controller.console import language
from controller.console.asking import ask, everything, page
from controller.console.show import browser
from controller.console.spoken import spoken
from controller.context import Context
from controller.errors import ApiError
from controller.notify import wording
from controller.notify.kinds import GROUPS, SHARED
from controller.rights import Actor
from controller.store import notifications
from controller.words import N_

SHOWN = 50
PAGES = (("", N_("Keys and account")), ("notifications", N_("What I am told")))


def register(app: Flask, ctx: Context) -> None:
    """/account, /account/notifications, /notifications"""
    app.jinja_env.filters["browser"] = browser

    def show(template: str, here: str, **more: Any) -> str:
        tabs = [(f"/account/{key}".rstrip("/"), _(text)) for key, text in PAGES]
        return render_template(f"console/{template}.html", tabs=tabs, tab=f"/account/{here}".rstrip("/"), **more)

    @page(app, ctx, "/account")
    def account(actor: Actor) -> ResponseReturnValue:
        keys = everything(ctx, actor, keys_api.list_keys, keys_api.KeyPage)
        keys.sort(key=lambda k: (not k["active"], k["created_at"]))
        return show(
            "account",
            "",
            person=ask(ctx, actor, people_api.me),
            keys=keys,
            sessions=ask(ctx, actor, sign_ins.list_sessions)["items"],
            zones=sorted(available_timezones()),
            locale=str(get_locale()),
        )

    @page(app, ctx, "/account/notifications")
    def told(actor: Actor) -> ResponseReturnValue:
        return show("account_told", "notifications", **choices(ctx, actor), targets=_targets(ctx, actor, False))

    @page(app, ctx, "/notifications")
    def inbox(actor: Actor) -> ResponseReturnValue:
        unread = request.args.get("unread") == "1"
        try:
            before = place(request.args.get("before"), str)
        except ApiError:
            before = None
        with ctx.store.read() as db:
            rows = notifications.page(db, actor.id, SHOWN + 1, before[0] if before else None, unread, None)
            count = notifications.unread(db, actor.id)
        lang, zone = str(get_locale()), language.chosen_zone()
        items = []
        for row in rows[:SHOWN]:
            said = wording.render(row.kind, notifications.facts_of(row), lang, zone)
            items.append(
                {
                    "id": row.id,
                    "at": row.at,
                    "new": row.read_at is None,
                    "title": said.title,
                    "text": said.sentence(),
                    "link": said.link,
                }
            )
        more = cursor(rows[SHOWN - 1].id) if len(rows) > SHOWN else None
        return render_template("console/notices.html", items=items, count=count, unread=unread, more=more)


def choices(ctx: Context, actor: Actor) -> dict[str, Any]:
    """The table of kinds and ways."""
    told = ask(ctx, actor, notice_choice.look)
    lang = str(get_locale())
    groups: dict[str, list[dict[str, Any]]] = {}
    for kind in told["kinds"]:
        groups.setdefault(kind["group"], []).append({**kind, "title": wording.kind_title(kind["kind"], lang)})
    ways = [{**w, "title": wording.way_title(w["way"], lang), "why": spoken(w["why"])} for w in told["ways"]]
    return {
        "groups": [(wording.group_title(g, lang), groups[g]) for g in GROUPS if g in groups],
        "ways": ways,
        "email": told["email"],
    }


def _targets(ctx: Context, actor: Actor, shared: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(ctx, actor, targets_api.list_targets, targets_api.Which(shared=shared))["items"]
    return found


def shared_targets(ctx: Context, actor: Actor) -> dict[str, Any]:
    """For the administrators' page: everybody's targets, and which kinds may go there."""
    lang = str(get_locale())
    return {
        "targets": _targets(ctx, actor, True),
        "kinds": [(kind, wording.kind_title(kind, lang)) for kind in SHARED],
    }
