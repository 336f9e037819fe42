"""The overview, its live parts, static files, and the page that says what went wrong."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from flask import Flask, Response, redirect, render_template, request, send_from_directory
from flask.typing import ResponseReturnValue
from flask_babel import get_locale
from flask_babel import gettext as _

from controller.console import language, overview, show
from controller.console.signed_in import actor_of, person
from controller.context import Context
from controller.words import CATEGORIES, STATUSES

STATIC = Path(__file__).parent / "static"
# What ticks in the browser is no change: countdowns, and how far a bar has come.
_TICKS = re.compile(r'(<span data-tick="[^>]*>)[^<]*|(?<=<progress)( [^>]*?) value="[^"]*"')


def register(app: Flask, ctx: Context) -> None:
    """Routes, filters, and what every template is given."""
    app.jinja_env.filters.update(model=show.model_name, gb=show.gigabytes, duration=show.duration, beyond=show.beyond)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.globals.update(
        categories=CATEGORIES,
        statuses=STATUSES,
        languages=language.LANGUAGES,
        static=_static_url,
        curl=show.curl,
        raw=lambda text: _(text),  # for the script, which fills in %(…)s itself
    )
    app.jinja_loader = _loader()
    app.extensions["slotserve.error_page"] = _error_page

    @app.context_processor
    def _every_page() -> dict[str, Any]:
        zone, now = language.chosen_zone(), ctx.clock()
        return {
            "me": person(),
            "zone": zone,
            "zone_name": zone.key,
            "now": now,
            "language_tag": language.language_tag(),
            "other_language": "en" if str(get_locale()) == "zh_Hans" else "zh_Hans",
            "t": lambda at, seconds=False: show.time_tag(at, now, zone, seconds),
            "window": lambda start, end: show.window(start, end, now, zone),
            "tick": lambda form, at: show.countdown(form, at, now),
        }

    @app.get("/")
    def home() -> ResponseReturnValue:
        who = person()
        if who is None:
            return redirect("/login?next=/")
        view = overview.build(ctx, actor_of(who), ctx.clock(), language.chosen_zone())
        parts = render_parts(view)
        return render_template(
            "console/overview.html",
            view=view,
            parts=parts,
            hashes=json.dumps({k: part_hash(v) for k, v in parts.items()}),
        )

    @app.get("/overview/rows")
    def rows() -> ResponseReturnValue:
        """The parts of the overview: {now, parts: {id: [hash, html]}}; 304 while none has changed but by ticking."""
        who = person()
        if who is None:
            return Response(json.dumps({"login": "/login?next=/"}), 401, mimetype="application/json")
        actor, now, zone = actor_of(who), ctx.clock(), language.chosen_zone()

        def read() -> tuple[tuple[str, str], int]:
            view = overview.build(ctx, actor, now, zone)
            parts = {name: [part_hash(html), html] for name, html in render_parts(view).items()}
            tag = hashlib.sha256("".join(p[0] + n for n, p in parts.items()).encode()).hexdigest()[:20]
            return (json.dumps(parts, ensure_ascii=False), tag), view.until

        what = ("overview", actor.id, actor.role, str(get_locale()), zone.key)
        parts, tag = ctx.polled.get(ctx.store, ctx.live, what, None, now, read, lambda made: made)
        answer = Response(f'{{"now": {now}, "parts": {parts}}}', mimetype="application/json")
        answer.set_etag(tag, weak=True)
        answer.headers["Cache-Control"] = "private, no-cache"
        answer.headers["Vary"] = "Cookie, Accept-Language"
        answer.headers["X-SlotServe-Now"] = str(now)
        return answer.make_conditional(request)

    @app.get("/static/<path:name>")
    def static_file(name: str) -> ResponseReturnValue:
        answer = send_from_directory(STATIC, name)
        if request.args.get("v"):  # the address changes with the content
            answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer


def render_parts(view: overview.Overview) -> dict[str, str]:
    """id -> HTML of every part that is swapped by itself: the lists, and a row a channel."""
    parts = {
        name: render_template(f"console/_{name}.html", view=view) for name in ("chips", "yours", "alerts", "today")
    }
    for node in view.nodes:
        parts[f"head-{node.anchor}"] = render_template("console/_node.html", node=node, view=view)
        for row in node.rows:
            parts[row.anchor] = render_template("console/_row.html", row=row, view=view)
    return parts


def part_hash(html: str) -> str:
    """What the browser compares: of the part without what ticks."""
    return hashlib.sha256(_TICKS.sub(r"\1\2", html).encode()).hexdigest()[:16]


def _error_page(status: int, message: str) -> str:
    """A page in the person's language; the message itself is the controller's, in English."""
    heads = {
        400: _("That request cannot be read"),
        401: _("Sign in first"),
        403: _("Not allowed"),
        404: _("There is no such page"),
    }
    head = heads.get(status, _("Something went wrong") if status >= 500 else _("That is not possible"))
    return render_template("console/error.html", status=status, head=head, message=message)


@cache
def _version(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]


def _static_url(name: str) -> str:
    return f"/static/{name}?v={_version(name)}"


def _loader() -> Any:
    from jinja2 import FileSystemLoader

    return FileSystemLoader(Path(__file__).parent / "templates")
