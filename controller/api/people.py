"""People: who I am, who there is, and what administrators do with accounts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from controller import accounts, shapes
from controller.api import auth
from controller.api.route import Body, Call, Page, Query, Route, cursor, listed, place
from controller.errors import Conflict, Forbidden, Invalid, NotFound
from controller.notify.language import LANGUAGES, zone_of
from controller.said import say
from controller.store import audit, notifications, users
from controller.store.session import Write
from controller.store.tables import ApiKey, User

Role = Literal["user", "approver", "admin"]


class NewUser(Body):
    name: str = Field(min_length=1, max_length=200)
    role: Role = "user"
    password: str | None = Field(None, max_length=1000, description="None: only keys open the account")
    password_temporary: bool = Field(False, description="To be changed at the first sign-in")
    email: str | None = Field(None, max_length=320)


class UserChange(Body):
    name: str | None = Field(None, min_length=1, max_length=200)
    role: Role | None = None
    password: str | None = Field(None, max_length=1000, description="null: none any more")
    password_temporary: bool | None = Field(
        None, description="To be changed at the next sign-in; where missing: so for somebody else's password"
    )
    current_password: str | None = Field(None, max_length=1000, description="Needed to change one's own password")
    email: str | None = Field(None, max_length=320)
    locale: str | None = Field(None, max_length=16)
    zone: str | None = Field(None, max_length=64)
    disabled: bool | None = None
    reason: str = Field("", max_length=2000)


class Preview(Query):
    preview: bool = Field(False, description="Only say what disabling the person would do")


def me(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        user = users.get(session, call.actor.id)
        if user is None:
            raise NotFound(say("the account is gone"))
        key = session.get(ApiKey, call.actor.key_id) if call.actor.key_id else None
        return {
            **shapes.user(user, call.actor),
            "via": call.actor.via,
            "key": {"id": key.id, "name": key.name, "prefix": key.prefix} if key else None,
            "must_change_password": user.password_temporary,
            "sign_in": _ways(user),
            "unread_notifications": notifications.unread(session, user.id),
        }


def list_users(call: Call) -> dict[str, Any]:
    page = call.query(Page)
    after = place(page.cursor, str)
    with call.ctx.store.read() as session:
        rows = users.page(session, page.limit + 1, after[0] if after else None)
        return listed(rows, page.limit, lambda u: shapes.user(u, call.actor), lambda u: cursor(u.name))


def create_user(call: Call) -> dict[str, Any]:
    body = call.body(NewUser)
    email = users.clean_email(body.email)
    hashed = users.hash_password(body.password)  # slow on purpose: not while the database is held
    with call.ctx.store.write() as session:
        user = users.create(session, body.name, None, body.role, call.now, email=email)
        user.password_hash, user.password_temporary = hashed, body.password_temporary and hashed is not None
        audit.add(session, call.actor.id, "user.create", user.id, call.now, after=shapes.user(user, call.actor))
        return shapes.user(user, call.actor)


def change_user(call: Call) -> dict[str, Any]:
    body, preview = call.body(UserChange), call.query(Preview).preview
    own = call.args["id"] in (call.actor.id, call.actor.name)
    wanted = body.model_dump(exclude_unset=True, exclude={"reason", "current_password"})
    if not own or wanted.keys() & {"name", "role", "disabled"}:
        call.need("user.manage")
    if own and "email" in wanted and call.ctx.settings.oidc_issuer and not call.may("user.manage"):
        raise Forbidden(say("email: decides which account a sign-in opens here; ask an administrator to change it"))
    for field in ("name", "role", "disabled"):
        if field in wanted and wanted[field] is None:
            raise Invalid.field(field, say("must not be null"))
    _check_private(wanted)
    if own and wanted.get("password") is not None:
        _know_password(call, body.current_password)
    temporary = wanted.pop("password_temporary", None)
    if temporary is not None and "password" not in wanted:
        raise Invalid.field("password_temporary", say("is said with a new password only"))
    if "password" in wanted:
        wanted["password_temporary"] = not own if temporary is None else temporary
        wanted["password_hash"] = users.hash_password(wanted.pop("password"))
    if preview:
        with call.ctx.store.read() as session:
            return accounts.preview(session, call.ctx.settings, call.actor, _found(session, call), call.now)
    with call.ctx.store.write() as session:
        user = _found(session, call)
        before = shapes.user(user, call.actor)
        _apply(call, session, user, wanted, body.reason)
        after = shapes.user(user, call.actor)
        audit.add(
            session, call.actor.id, "user.change", user.id, call.now, before=before, after=after, reason=body.reason
        )
    if wanted.keys() & {"disabled", "role", "name"}:
        call.ctx.keys_changed()
    return after


def _check_private(wanted: dict[str, Any]) -> None:
    """Address, language and zone, made right in place. Raises Invalid."""
    if "email" in wanted:
        wanted["email"] = users.clean_email(wanted["email"])
    if "locale" in wanted:
        wanted["locale"] = wanted["locale"] or None
        if wanted["locale"] not in (None, *LANGUAGES):
            raise Invalid.field("locale", say("must be one of %(list)s, or null", list=", ".join(LANGUAGES)))
    if "zone" in wanted:
        wanted["zone"] = zone = wanted["zone"] or None
        if zone is not None and str(zone_of(zone)) != zone:
            raise Invalid.field(
                "zone", say("there is no time zone %(zone)s; write it as Asia/Shanghai, or null", zone=repr(zone))
            )


def _apply(call: Call, session: Write, user: User, wanted: dict[str, Any], reason: str) -> None:
    if "name" in wanted:
        name = users.clean_name(wanted["name"])
        other = users.by_name(session, name)
        if other is not None and other.id != user.id:
            raise Conflict(
                say("name: there is already somebody called %(name)s", name=name), details={"name": say("is taken")}
            )
        user.name = name
    for field in ("role", "email", "locale", "zone"):
        if field in wanted:
            setattr(user, field, wanted[field])
    if "password_hash" in wanted:
        keep = auth.session_id(call.ctx, call.actor) if user.id == call.actor.id else ""
        accounts.set_password(
            session, user, wanted["password_hash"], call.now, temporary=wanted["password_temporary"], keep=keep
        )
        audit.add(
            session, call.actor.id, "user.password", user.id, call.now, after={"temporary": user.password_temporary}
        )
    if wanted.get("disabled") is True and user.disabled_at is None:
        accounts.disable(session, user, call.actor.id, reason, call.now)
    elif wanted.get("disabled") is False:
        user.disabled_at = None
    session.flush()
    if not users.any_administrator(session):
        raise Conflict(say("somebody must stay administrator; make another one first"))


def _found(session: Any, call: Call) -> User:
    user = users.find(session, call.args["id"])
    if user is None:
        raise NotFound(say("there is nobody with the id or name %(name)s", name=call.args["id"]))
    return user


def disable_preview(call: Call) -> dict[str, Any]:
    """What disabling a person would do."""
    with call.ctx.store.read() as session:
        return accounts.preview(session, call.ctx.settings, call.actor, _found(session, call), call.now)


def _ways(user: User) -> str:
    """How a person signs in to the console."""
    if user.password_hash is not None:
        return "both" if user.subject else "local"
    return "oidc" if user.subject else "none"


def _know_password(call: Call, current: str | None) -> None:
    with call.ctx.store.read() as session:
        user = users.get(session, call.actor.id)
        if user is None or (user.password_hash and not users.check_password(session, user.name, current or "")):
            raise Forbidden(say("current_password: is not your present password"))
        if user.password_hash is None and user.subject is not None:
            raise Forbidden(say("password: you sign in by the identity provider; an administrator may set one for you"))


ROUTES = (
    Route("GET", "/me", me, "The person who calls"),
    Route("GET", "/users", list_users, "People, by name", query=Page, action="user.list"),
    Route("POST", "/users", create_user, "A new account", body=NewUser, status=201, action="user.manage",
          answers={409: "The name is taken"}),
    Route("PATCH", "/users/<id>", change_user, "Changes an account; `?preview=1` says what disabling would do",
          body=UserChange, query=Preview, answers={404: "Nobody", 409: "The last administrator, or a taken name"}),
    Route("GET", "/users/<id>/disable-preview", disable_preview, "What disabling a person would do", action="user.manage",
          answers={404: "Nobody"}),
)  # fmt: skip
