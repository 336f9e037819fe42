"""Who calls: an API key (`Authorization: Bearer sk-ss-…`) or the console's session. Writes of a session need the
CSRF token in `X-CSRF-Token`; keys need none, for no browser sends them by itself. A person whose password is a temporary
one may change it, and nothing else, until they have: with a session, for keys are made by people who are in."""

from __future__ import annotations

from flask import Request, g, session
from flask_wtf.csrf import validate_csrf
from wtforms import ValidationError

from controller import sessions
from controller.context import Context
from controller.errors import Forbidden, Unauthorized
from controller.rights import Actor
from controller.said import say
from controller.sessions import SignedIn
from controller.store import keys
from controller.store.session import if_it_can

SAFE = ("GET", "HEAD", "OPTIONS")


def authenticate(ctx: Context, request: Request, now: int) -> Actor:
    """The person who calls. Raises Unauthorized, Forbidden (session without its CSRF token)."""
    header = request.headers.get("Authorization")
    if header is not None:
        return _by_key(ctx, header, now)
    signed_in = current(ctx)
    if signed_in is None:
        raise Unauthorized(say("who are you? send `Authorization: Bearer <API key>`, or log in to the console"))
    if request.method not in SAFE:
        try:
            validate_csrf(request.headers.get("X-CSRF-Token"))
        except ValidationError as err:
            raise Forbidden(
                say("%(err)s (send the page's token in X-CSRF-Token, or use an API key)", err=str(err))
            ) from None
    user = signed_in.user
    if user.password_temporary and not _own_password(request, user.id):
        raise PasswordNeeded("your password was set by an administrator; choose your own at /password first")
    return Actor(user.id, user.name, user.role, "session")


class PasswordNeeded(Forbidden):
    code = "password_change_needed"


def current(ctx: Context) -> SignedIn | None:
    """The console's session of this request, looked at once."""
    if "signed_in" not in g:
        g.signed_in = sessions.find(session, ctx.store, ctx.settings, ctx.clock())
    found: SignedIn | None = g.signed_in
    return found


def session_id(ctx: Context, actor: Actor) -> str:
    """The session that the actor acts by; "" for keys."""
    signed_in = current(ctx) if actor.via == "session" else None
    return signed_in.id if signed_in is not None else ""


def _own_password(request: Request, user_id: str) -> bool:
    return request.method in SAFE or (request.method == "PATCH" and request.path == f"/api/v1/users/{user_id}")


def _by_key(ctx: Context, header: str, now: int) -> Actor:
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthorized(say("the Authorization header must read `Bearer <API key>`"))
    with ctx.store.glance() as db:
        found = keys.authenticate(db, secret.strip(), now)
    if found is None:
        raise Unauthorized(
            say("this API key is not known here, was revoked or has expired; make another with a log-in")
        )
    if found.last_used_at is None or found.last_used_at < now - keys.LAST_USE_MS:
        with if_it_can("when a key was last used"), ctx.store.write(aside=True) as db:
            keys.used(db, found.key_id, now)
    return Actor(found.user_id, found.user_name, found.role, "key", found.key_id)
