"""The web application: REST, health, metrics and the console. Served by waitress threads."""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path

from flask import Flask, request
from flask.sessions import SecureCookieSessionInterface
from flask_wtf.csrf import CSRFProtect

from controller import api, console, errors, health, key_files
from controller.context import Context

MAX_BODY = 1 << 20
KEY = "slotserve"  # app.extensions[KEY] is the Context


def create_app(ctx: Context) -> Flask:
    """A new application on `ctx`. `app.extensions["csrf"].protect()` is for the console's own forms."""
    app = Flask("controller", static_folder=None)
    app.extensions[KEY] = ctx
    app.config.update(
        SECRET_KEY=session_key(ctx.settings.state_dir),
        SESSION_COOKIE_NAME="slotserve",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=ctx.settings.public_url.startswith("https://"),
        PERMANENT_SESSION_LIFETIME=timedelta(hours=ctx.settings.session_hours),
        MAX_CONTENT_LENGTH=MAX_BODY,
        WTF_CSRF_CHECK_DEFAULT=False,  # keys need none; sessions are checked where they are accepted
        WTF_CSRF_TIME_LIMIT=None,  # as long as the session
        WTF_CSRF_SSL_STRICT=False,  # TLS ends in front of us; SameSite and the token do the work
    )
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.json.ensure_ascii = False  # type: ignore[attr-defined]
    app.session_interface = _Sessions()
    app.url_map.merge_slashes = False
    health.register(app, ctx)
    CSRFProtect().init_app(app)
    errors.register(app)
    api.register(app, ctx)
    console.register(app, ctx)
    return app


class _Sessions(SecureCookieSessionInterface):
    """The session's cookie is Secure wherever the console is reached by https, also where nobody has set its address."""

    def get_cookie_secure(self, app: Flask) -> bool:
        return super().get_cookie_secure(app) or request.is_secure


def session_key(state_dir: Path) -> bytes:
    """The key that signs sessions: made at the first start, readable by this user only."""
    return key_files.kept(state_dir / "session.key", lambda: secrets.token_bytes(32), lambda key: len(key) >= 32)
