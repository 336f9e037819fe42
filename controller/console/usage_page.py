"""/usage: requests, tokens and hours, as charts, tables and CSV. One's own; everybody's for administrators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flask import Flask, Response, render_template, request
from flask.typing import ResponseReturnValue

from controller.console import language, show, usage_data
from controller.console.asking import page
from controller.context import Context
from controller.csv_text import csv_text
from controller.rights import Actor, Owned, may
from controller.store import users
from controller.times import text_of

GROUPS = ("user", "model", "channel")


def register(app: Flask, ctx: Context) -> None:
    """The page and its two CSV files."""

    def asked(actor: Actor) -> tuple[usage_data.View, dict[str, Any]]:
        hours = request.args.get("range", "7d")
        hours = hours if hours in usage_data.RANGES else "7d"
        all_of_it = bool(may(actor, "usage.see", Owned(None)))
        wanted = request.args.get("user", "*" if all_of_it else "")[:200]
        with ctx.store.read() as db:
            known = users.find(db, wanted) if wanted not in ("", "*") else None
            people = [u.name for u in users.page(db, 2000)] if all_of_it else []
        whose: str | None = actor.id
        if all_of_it:
            whose = None if wanted == "*" else known.id if known else actor.id
        by = request.args.get("by", "user" if whose is None else "model")
        facts = {
            "hours": hours,
            "everybody": whose is None,
            "all_of_it": all_of_it,
            "user": "*" if whose is None else known.name if known else actor.name,
            "people": people,
            "by": by if by in GROUPS and (by != "user" or all_of_it) else "model",
        }
        return usage_data.build(ctx, ctx.clock(), hours, whose), facts

    @page(app, ctx, "/usage")
    def usage(actor: Actor) -> ResponseReturnValue:
        view, facts = asked(actor)
        zone = language.chosen_zone()
        every = max(1, len(view.bars) // 6)
        labels = [(b.x + b.width / 2, _label(b.at, zone, facts["hours"])) for b in view.bars[every // 2 :: every]]
        return render_template("console/usage.html", view=view, labels=labels, **facts)

    @page(app, ctx, "/usage/requests.csv")
    def requests_csv(actor: Actor) -> ResponseReturnValue:
        view, facts = asked(actor)
        head = [facts["by"], "requests", "failed", "seconds", "prompt_tokens", "completion_tokens"]
        rows = [
            [s.name, s.requests, s.failed, round(s.seconds, 3), s.prompt, s.completion] for s in view.by[facts["by"]]
        ]
        return _csv("requests", view, head, rows)

    @page(app, ctx, "/usage/hours.csv")
    def hours_csv(actor: Actor) -> ResponseReturnValue:
        view, _ = asked(actor)
        states = list(view.channels[0].hours) if view.channels else []
        head = ["channel", *(f"{s}_hours" for s in states), "reserved_hours", "fallback_hours"]
        rows = [
            [c.name, *(round(h, 4) for h in c.hours.values()), round(c.reserved, 4), round(c.fallback, 4)]
            for c in view.channels
        ]
        return _csv("hours", view, head, rows)


def _label(at: int, zone: Any, hours: str) -> str:
    local = show.moment(at, zone)
    return local.strftime("%H:%M") if hours == "24h" else show.date(local)


def _csv(name: str, view: usage_data.View, head: list[str], rows: Iterable[list[Any]]) -> Response:
    answer = Response(csv_text(head, rows), mimetype="text/csv")
    day = (text_of(view.end) or "")[:10]
    answer.headers["Content-Disposition"] = f'attachment; filename="slotserve-{name}-{day}.csv"'
    answer.headers["Cache-Control"] = "no-store"
    return answer
