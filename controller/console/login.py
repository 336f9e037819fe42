"""Log-in by password. A new session at each log-in, the same answer for a wrong name and a wrong password,
and a wait that grows with every failure of an address or a name. What was tried is in the audit trail, but never what
was typed: people type passwords into the wrong field."""

from __future__ import annotations

import logging

from flask import Flask, redirect, render_template, request, session
from flask.typing import ResponseReturnValue
from flask_babel import gettext as _
from flask_wtf.csrf import generate_csrf
from werkzeug.wrappers import Response

from controller import oidc, sessions, vault
from controller.console.signed_in import person, safe_next
from controller.context import Context
from controller.store import audit, users
from controller.store.tables import User
from controller.throttle import Throttle

log = logging.getLogger(__name__)
OPEN = ("/static/", "/api/", "/login", "/logout", "/password", "/feed/", "/wall/", "/healthz", "/readyz", "/metrics")


def register(app: Flask, ctx: Context) -> None:
    """/login; whose password is a temporary one is led to /password from everywhere else."""
    throttle = Throttle()
    app.extensions["slotserve.throttle"] = throttle

    @app.before_request
    def own_password_first() -> ResponseReturnValue | None:
        if request.path.startswith(OPEN):
            return None
        who = person()
        if who is None or not who.password_temporary:
            return None
        return redirect("/password")

    @app.get("/login")
    def login() -> ResponseReturnValue:
        if person() is not None:
            return redirect(safe_next(request.args.get("next")))
        return page(ctx, safe_next(request.args.get("next")))

    @app.post("/login")
    def log_in() -> ResponseReturnValue:
        app.extensions["csrf"].protect()
        name, password = request.form.get("name", "")[:200], request.form.get("password", "")[:1000]
        target = safe_next(request.form.get("next"))
        keys = (f"name {name.strip().casefold()}", f"address {request.remote_addr}")
        if (wait := throttle.wait(*keys)) > 0:
            words = _("Too many wrong tries. Wait %(seconds)s s, then try again.", seconds=int(wait) + 1)
            answer = page(ctx, target, name, words, 429)
            answer.headers["Retry-After"] = str(int(wait) + 1)
            return answer
        with ctx.store.read() as db:
            who = users.check_password(db, name, password)
        if who is None:
            throttle.failed(*keys)
            refused(ctx, name, "password")
            return page(ctx, target, name, _("Name and password do not fit together."), 401)
        throttle.succeeded(keys[0])
        enter(ctx, who, "password")
        return redirect(target)


def enter(ctx: Context, who: User, way: str, id_token: str = "") -> None:
    """A session for who has shown who they are; `id_token`: by what the identity provider said so."""
    address, agent = request.remote_addr or "", request.headers.get("User-Agent", "")
    sealed = vault.of(ctx).seal(id_token) if id_token else None
    with ctx.store.write() as db:
        sessions.begin(session, db, who, ctx.clock(), way, address, agent, sealed)
        audit.add(db, who.id, "session.begin", who.id, ctx.clock(), after={"way": way, "address": address})
    session.permanent = True
    generate_csrf()


def refused(ctx: Context, name: str, way: str, reason: str = "") -> None:
    """A log-in that was refused, in the log and the audit trail: by whose account, where the name is somebody's."""
    log.warning("log-in refused address=%s way=%s why=%r", request.remote_addr, way, reason)
    with ctx.store.write() as db:
        known = users.by_name(db, name.strip()) if name and "\0" not in name else None
        audit.add(
            db,
            None,
            "session.refused",
            known.id if known else "",
            ctx.clock(),
            after={"way": way, "address": request.remote_addr or ""},
            reason=reason,
        )


def page(ctx: Context, target: str, name: str = "", error: str = "", status: int = 200) -> Response:
    """The log-in page, with what went wrong."""
    text = render_template(
        "console/login.html", target=target, name=name, error=error, provider=oidc.label(ctx.settings)
    )
    return Response(text, status, mimetype="text/html")
