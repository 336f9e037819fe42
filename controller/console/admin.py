"""Administration: nodes, people, keys, the audit, and the settings in force. For administrators only."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any

from flask import Flask, redirect, render_template, request
from flask.typing import ResponseReturnValue
from flask_babel import gettext as _

from controller.api import audit as audit_api
from controller.api import feeds as feeds_api
from controller.api import keys as keys_api
from controller.api import notifications as notices_api
from controller.api import people as people_api
from controller.api.route import Page, place
from controller.console import acts, language
from controller.console.account import shared_targets
from controller.console.asking import ask, everything, page
from controller.console.show import clock
from controller.context import Context
from controller.errors import ApiError
from controller.notify import trouble
from controller.rights import Actor
from controller.settings import PREFIX, Settings, SettingsError, load_settings
from controller.store import audit, users
from controller.words import N_

PAGES = (
    ("nodes", N_("Nodes")),
    ("users", N_("People")),
    ("keys", N_("API keys")),
    ("notifications", N_("Notifications")),
    ("wall", N_("Wall displays")),
    ("audit", N_("Audit")),
    ("settings", N_("Settings")),
)
SHOWN = 50
STATES = ("waiting", "sent", "failed")


def show(template: str, here: str, **more: Any) -> str:
    """A page of the administration: its template and its tab."""
    tabs = [(key, _(text)) for key, text in PAGES]
    return render_template(f"console/{template}.html", tabs=tabs, tab=here, **more)


def register(app: Flask, ctx: Context) -> None:
    """/admin and what is below it, but for the nodes (nodes_page.py)."""

    @page(app, ctx, "/admin", action="node.manage")
    def admin(actor: Actor) -> ResponseReturnValue:
        return redirect("/admin/nodes")

    @page(app, ctx, "/admin/users", action="user.manage")
    def people(actor: Actor) -> ResponseReturnValue:
        rows = everything(ctx, actor, people_api.list_users, Page)
        return show("admin_users", "users", users=rows)

    @page(app, ctx, "/admin/keys", action="user.manage")
    def keys(actor: Actor) -> ResponseReturnValue:
        rows = everything(ctx, actor, keys_api.list_keys, keys_api.KeyPage, user="*")
        rows.sort(key=lambda k: (not k["active"], k["user"] or "", k["name"]))
        return show("admin_keys", "keys", keys=rows)

    @page(app, ctx, "/admin/notifications", action="message.see")
    def messages(actor: Actor) -> ResponseReturnValue:
        state = request.args.get("state", "")
        wanted = notices_api.Messages.model_validate({"limit": 100, "state": state if state in STATES else None})
        return show(
            "admin_notifications",
            "notifications",
            messages=ask(ctx, actor, notices_api.messages, wanted)["items"],
            state=state if state in STATES else "",
            problems=trouble.summed(ask(ctx, actor, notices_api.delivery)),
            mail=bool(ctx.settings.smtp_host),
            **shared_targets(ctx, actor),
        )

    @page(app, ctx, "/admin/wall", action="wall.create")
    def walls(actor: Actor) -> ResponseReturnValue:
        rows = everything(ctx, actor, feeds_api.list_feeds, feeds_api.FeedPage, user="*")
        found = sorted((r for r in rows if r["kind"] == "wall"), key=lambda r: not r["active"])
        return show("admin_wall", "wall", links=found, names=ctx.settings.show_holders == "everyone")

    @page(app, ctx, "/admin/audit", action="audit.see")
    def trail(actor: Actor) -> ResponseReturnValue:
        given = {n: request.args.get(n, "")[:200].strip() for n in ("action", "actor", "subject", "day")}
        rows, more, problem = _audit(ctx, given, request.args.get("before"))
        return show(
            "admin_audit",
            "audit",
            lines=rows,
            given=given,
            more=more,
            problem=problem,
            kinds=[(k, _(text)) for k, text in acts.KINDS.items()],
            words=[(k, _(text)) for k, text in acts.ACTIONS.items()],
        )

    @page(app, ctx, "/admin/settings", action="node.manage")
    def settings(actor: Actor) -> ResponseReturnValue:
        return show("admin_settings", "settings", rows=_settings(ctx.settings))


def _audit(ctx: Context, given: dict[str, str], cursor: str | None) -> tuple[list[acts.Line], str | None, str]:
    """(lines, where the next page begins, what is wrong with the filter)."""
    start = end = None
    problem = ""
    if given["day"]:
        try:
            start, end = _day(given["day"], language.chosen_zone())
        except (ValueError, OverflowError):
            problem = _("That is no day.")
    with ctx.store.read() as db:
        actor = users.find(db, given["actor"]) if given["actor"] else None
        if given["actor"] and actor is None:
            problem = _("There is nobody called %(name)s.", name=given["actor"])
        if problem:
            return [], None, problem
        try:
            before = place(cursor, str)
        except ApiError:
            before = None
        rows = audit.page(
            db,
            SHOWN + 1,
            before[0] if before else None,
            given["action"] or None,
            given["subject"] or None,
            actor.id if actor else None,
            (start, end),
        )
        shown = rows[:SHOWN]
        zone, now = language.chosen_zone(), ctx.clock()
        names = users.names(db, {r.actor_id for r in shown})
        made = acts.lines(db, shown, names, lambda at: clock(at, now, zone))
    return made, audit_api.cursor(shown[-1].id) if len(rows) > SHOWN else None, ""


def _day(text: str, zone: tzinfo) -> tuple[int, int]:
    """The local day, which may have 23 or 25 hours. Raises ValueError or OverflowError where there is none."""
    midnight = datetime.combine(date.fromisoformat(text), time(), zone)
    return round(midnight.timestamp() * 1000), round((midnight + timedelta(days=1)).timestamp() * 1000)


def _written(value: Any) -> str:
    """A setting as it would stand in the environment."""
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def _settings(settings: Settings) -> list[dict[str, Any]]:
    """Every setting in force with its origin; what is secret only says whether it is set."""
    try:
        origins = {o.variable: o.origin for o in load_settings()[1]}
    except SettingsError:  # the environment has changed since the start
        origins = {}
    rows = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        variable = PREFIX + name.upper()
        if name == "database_url":
            from sqlalchemy.engine import make_url

            value = make_url(settings.database).render_as_string(hide_password=True)
        elif field.repr is False or name.endswith(("_password", "_secret")):
            value = _("(set)") if value else ""
        default = field.get_default(call_default_factory=True)
        rows.append(
            {
                "variable": variable,
                "value": _written(value),
                "changed": name != "database_url" and getattr(settings, name) != default,
                "origin": origins.get(variable, ""),
                "description": _(field.description) if field.description else "",
            }
        )
    return rows
