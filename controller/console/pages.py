"""The overview, its live parts, static files, and the page that says what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flask import Flask, g, redirect, render_template, request, send_from_directory
from flask.typing import ResponseReturnValue
from flask_babel import get_locale
from flask_babel import gettext as _

from controller.console import assets, calls, language, live, nav, overview_parts, shell, show, spoken
from controller.console.signed_in import actor_of, person
from controller.context import Context
from controller.words import CATEGORIES, STATUSES
from protos.shared import clocks


def register(app: Flask, ctx: Context) -> None:
    """Routes, filters, and what every template is given."""
    app.jinja_env.filters.update(model=show.model_name, gb=show.gigabytes, duration=show.duration)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.globals.update(
        categories=CATEGORIES,
        clock_limit=clocks.LIMIT_SECONDS,
        clock_wrong=clocks.wrong,
        statuses=STATUSES,
        languages=language.LANGUAGES,
        static=assets.url,
        styles=assets.STYLES,
        curl=show.curl,
        instant=show.instant,
        snippets=calls.snippets,
        spoken=spoken.spoken,
        there=nav.there,
        raw=lambda text: _(text),  # for the script, which fills in %(…)s itself
    )
    app.jinja_loader = _loader()
    app.extensions["slotserve.error_page"] = _error_page

    @app.context_processor
    def _every_page() -> dict[str, Any]:
        return {"me": person(), "shell": shell.shown, **_words(ctx)}

    app.extensions["slotserve.words"] = lambda: _words(ctx)

    @app.get("/")
    def home() -> ResponseReturnValue:
        who = person()
        if who is None:
            return redirect("/login?next=/")
        actor, now = actor_of(who), ctx.clock()
        made = overview_parts.compose(ctx, actor, now, language.chosen_zone())
        shown, tag = overview_parts.first(made)
        return render_template(
            "console/overview.html",
            view=made.view,
            parts=made.parts,
            shown=shown,
            tag=tag,
            more=len(shown) < len(made.parts),
        )

    @app.get("/overview/rows")
    def rows() -> ResponseReturnValue:
        """The parts of the overview; 304 while none has changed but by ticking."""
        who = person()
        if who is None:
            return live.signed_out()
        actor, now, zone = actor_of(who), ctx.clock(), language.chosen_zone()
        made = overview_parts.compose(ctx, actor, now, zone)
        return live.told(now, made.parts, made.marks, made.tag)

    @app.get("/static/<path:name>")
    def static_file(name: str) -> ResponseReturnValue:
        answer = send_from_directory(assets.STATIC, name)
        if request.args.get("v"):  # the address changes with the content
            answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer


def _words(ctx: Context) -> dict[str, Any]:
    """Times and language, of which the parts of a page are made."""
    found: dict[str, Any] | None = g.get("words")
    if found is None:
        zone, now = language.chosen_zone(), ctx.clock()
        found = g.words = {
            "zone": zone,
            "zone_name": zone.key,
            "now": now,
            "language_tag": language.language_tag(),
            "gap": "" if language.language_tag().startswith("zh") else " ",  # between two sentences
            "other_language": "en" if str(get_locale()) == "zh_Hans" else "zh_Hans",
            "t": lambda at, seconds=False: show.time_tag(at, now, zone, seconds),
            "window": lambda start, end: show.window(start, end, now, zone),
            "until": lambda start, end: show.until(start, end, now, zone),
            "tick": lambda form, at: show.countdown(form, at, now),
        }
    return found


def _error_page(status: int, message: str) -> str:
    """A page in the person's language."""
    heads = {
        400: _("That request cannot be read"),
        401: _("Sign in first"),
        403: _("Not allowed"),
        404: _("There is no such page"),
        503: _("Not possible at the moment"),
    }
    head = heads.get(status, _("Something went wrong") if status >= 500 else _("That is not possible"))
    return render_template("console/error.html", status=status, head=head, message=message)


def _loader() -> Any:
    from jinja2 import FileSystemLoader

    return FileSystemLoader(Path(__file__).parent / "templates")
