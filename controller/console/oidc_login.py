"""Log-in by the identity provider: the button leads to /login/oidc, the provider back to /login/oidc/callback."""

from __future__ import annotations

import hmac
import logging
from typing import Any

from flask import Flask, redirect, request, session
from flask.typing import ResponseReturnValue
from flask_babel import gettext as _

from controller import oidc, oidc_accounts
from controller.console.login import enter, page, refused
from controller.console.signed_in import person, safe_next
from controller.context import Context
from controller.errors import NotFound
from controller.oidc import Begun, OidcError
from controller.said import say
from controller.store.tables import User

log = logging.getLogger(__name__)
COOKIE = "oidc"
GOOD_FOR_MS = 600_000  # from the button to being back
BACK = "/login/oidc/callback"
_STATUS = {"down": 503, "late": 400, "refused": 401, "token": 401}


def register(app: Flask, ctx: Context) -> None:
    """The two addresses; without a provider in the settings they are not there."""

    @app.get("/login/oidc")
    def begin_oidc() -> ResponseReturnValue:
        """`?connect=1` by a signed-in person: this sign-in is for their own account from then on."""
        _needed(ctx)
        target = safe_next(request.args.get("next"))
        who = person()
        if who is not None and not request.args.get("connect"):
            return redirect(target)
        try:
            begun = oidc.provider(ctx).begin(_redirect_uri(ctx))
        except OidcError as err:
            return _sorry(ctx, target, err)
        session[COOKIE] = {
            "state": begun.state,
            "nonce": begun.nonce,
            "verifier": begun.verifier,
            "next": target,
            "at": ctx.clock(),
            "connect": who.id if who is not None else None,
        }
        return redirect(begun.url)

    @app.get(BACK)
    def end_oidc() -> ResponseReturnValue:
        _needed(ctx)
        kept = session.pop(COOKIE, None)
        target = safe_next(kept.get("next")) if isinstance(kept, dict) else "/"
        try:
            user, id_token = _finished(ctx, kept)
        except OidcError as err:
            return _sorry(ctx, target, err)
        enter(ctx, user, "oidc", id_token)
        return redirect(target)


def _finished(ctx: Context, kept: Any) -> tuple[User, str]:
    """The person who is back from the provider, and their ID token. Raises OidcError."""
    now = ctx.clock()
    state = request.args.get("state", "")
    if not isinstance(kept, dict) or not hmac.compare_digest(str(kept.get("state")).encode(), state.encode()):
        raise OidcError("late", "state: not of a sign-in that this browser has begun")
    if not 0 <= now - int(kept.get("at", 0)) <= GOOD_FOR_MS:
        raise OidcError("late", "begun too long ago")
    if (error := request.args.get("error")) is not None:
        raise OidcError("refused", f"{error[:100]} {request.args.get('error_description', '')[:300]}".strip())
    begun = Begun("", state, str(kept["nonce"]), str(kept["verifier"]))
    signed_in = oidc.provider(ctx).finish(request.args.get("code", ""), begun, _redirect_uri(ctx), now / 1000)
    named = oidc_accounts.named(signed_in.claims, ctx.settings)
    connect = kept.get("connect")
    who = person()
    if connect is not None and (who is None or who.id != connect):
        raise OidcError("late", "signed out meanwhile")
    with ctx.store.write() as db:
        user = oidc_accounts.account(db, named, ctx.settings, now, connect)
    ctx.keys_changed()  # a role may be another one now, and the gateways' tables of keys carry it
    return user, signed_in.id_token


def _sorry(ctx: Context, target: str, err: OidcError) -> ResponseReturnValue:
    name = oidc.label(ctx.settings)
    words = {
        "down": _(
            "%(provider)s does not answer as it should. Try again later, or sign in with a password.", provider=name
        ),
        "late": _("This sign-in was begun too long ago, or in another window. Please try again."),
        "refused": _("%(provider)s has refused the sign-in.", provider=name),
        "token": _("What %(provider)s has sent cannot be trusted; nobody was signed in.", provider=name),
        "group": _("Your groups at %(provider)s do not let you in here. Ask an administrator.", provider=name),
        "domain": _(
            "Your e-mail address at %(provider)s does not let you in here. Ask an administrator.", provider=name
        ),
        "disabled": _("Your account here is disabled. Ask an administrator."),
        "account": _("There is no account for you here yet. Ask an administrator."),
        "taken": _("That sign-in belongs to another account already."),
    }
    log.warning("sign-in by the provider failed code=%s why=%s", err.code, err)
    if err.code != "down":
        refused(ctx, "", "oidc", f"{err.code}: {err}"[:500])
    return page(ctx, target, "", words[err.code], _STATUS.get(err.code, 403))


def _redirect_uri(ctx: Context) -> str:
    return (ctx.settings.public_url or request.url_root.rstrip("/")) + BACK


def _needed(ctx: Context) -> None:
    if not ctx.settings.oidc_issuer:
        raise NotFound(say("there is no identity provider here: SLOTSERVE_OIDC_ISSUER is not set"))
