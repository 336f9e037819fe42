"""Log-out: the session here ends, and where the identity provider began it, the one there as well (RP-initiated logout).

A form's answer may lead nowhere else (form-action of the content security policy counts for redirects too), so the way
to the provider is a page that goes on by itself, and has the link for whom it does not.
"""

from __future__ import annotations

import logging

from flask import Flask, make_response, redirect, render_template, request, session
from flask.typing import ResponseReturnValue

from controller import oidc, sessions, vault
from controller.api import auth
from controller.context import Context
from controller.oidc import OidcError
from controller.sessions import SignedIn
from controller.store import audit, web_sessions

log = logging.getLogger(__name__)
BACK = "/login"


def register(app: Flask, ctx: Context) -> None:
    """/logout."""

    @app.post("/logout")
    def log_out() -> ResponseReturnValue:
        app.extensions["csrf"].protect()
        signed_in = auth.current(ctx)
        onwards = _at_the_provider(ctx, signed_in) if signed_in else None
        with ctx.store.write() as db:
            sessions.end(session, db, ctx.clock())
            if signed_in is not None:
                after = {"provider": True} if onwards else None
                audit.add(db, signed_in.user.id, "session.end", signed_in.user.id, ctx.clock(), after=after)
        if onwards is None:
            return redirect(BACK)
        name = oidc.label(ctx.settings)
        answer = make_response(render_template("console/signed_out.html", me=None, onwards=onwards, provider=name))
        answer.headers["Refresh"] = f"0; url={onwards}"
        return answer


def _at_the_provider(ctx: Context, signed_in: SignedIn) -> str | None:
    """Where the browser goes to end the provider's session; None where that is left alone: by the settings, or because the
    provider offers no such thing or does not answer."""
    if signed_in.way != "oidc" or not ctx.settings.oidc_issuer or not ctx.settings.oidc_end_session:
        return None
    with ctx.store.read() as db:
        kept = web_sessions.id_token(db, signed_in.id)
    back = (ctx.settings.public_url or request.url_root).rstrip("/") + BACK
    try:
        return oidc.provider(ctx).end_session_url(back, vault.of(ctx).open(kept) if kept else "")
    except (OidcError, vault.Locked) as err:
        log.warning("the provider's session goes on why=%s", err)
        return None
