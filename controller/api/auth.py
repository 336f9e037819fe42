"""Who calls: an API key (`Authorization: Bearer sk-ss-…`) or the console's session. Writes of a session need the
CSRF token in `X-CSRF-Token`; keys need none, for no browser sends them by itself."""

from __future__ import annotations

from flask import Request, session
from flask_wtf.csrf import validate_csrf
from wtforms import ValidationError

from controller import sessions
from controller.context import Context
from controller.errors import Forbidden, Unauthorized
from controller.rights import Actor
from controller.store import keys

SAFE = ("GET", "HEAD", "OPTIONS")


def authenticate(ctx: Context, request: Request, now: int) -> Actor:
    """The person who calls. Raises Unauthorized, Forbidden (session without its CSRF token)."""
    header = request.headers.get("Authorization")
    if header is not None:
        return _by_key(ctx, header, now)
    actor = session_actor(ctx)
    if actor is None:
        raise Unauthorized("who are you? send `Authorization: Bearer <API key>`, or log in to the console")
    if request.method not in SAFE:
        try:
            validate_csrf(request.headers.get("X-CSRF-Token"))
        except ValidationError as err:
            raise Forbidden(f"{err} (send the page's token in X-CSRF-Token, or use an API key)") from None
    return actor


def session_actor(ctx: Context) -> Actor | None:
    """The person of the console's session, if there is one and the account is still enabled."""
    user = sessions.person(session, ctx.store)
    if user is None:
        return None
    return Actor(user.id, user.name, user.role, "session")


def _by_key(ctx: Context, header: str, now: int) -> Actor:
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthorized("the Authorization header must read `Bearer <API key>`")
    with ctx.store.glance() as db:
        found = keys.authenticate(db, secret.strip(), now)
    if found is None:
        raise Unauthorized("this API key is not known here, was revoked or has expired; make another with a log-in")
    key, user = found
    if key.last_used_at is None or key.last_used_at < now - keys.LAST_USE_MS:
        with ctx.store.write() as db:
            keys.used(db, key.id, now)
    return Actor(user.id, user.name, user.role, "key", key.id)
