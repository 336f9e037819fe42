"""API keys: made (the secret is shown once), listed, revoked. A revocation reaches the gateways at once."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller import shapes
from controller.api.route import Body, Call, Page, Route, cursor, listed, place
from controller.errors import Conflict, Invalid, NotFound
from controller.rights import Owned
from controller.said import say
from controller.store import audit, keys, users
from controller.store.tables import ApiKey
from controller.times import Instant


class NewKey(Body):
    name: str = Field(min_length=1, max_length=200)
    expires_at: Instant | None = None
    user: str | None = Field(None, max_length=200, description="For somebody else (administrators): id or name")


class KeyPage(Page):
    user: str | None = Field(None, max_length=200, description="Whose (administrators): id or name, `*` = everybody's")


def list_keys(call: Call) -> dict[str, Any]:
    query = call.query(KeyPage)
    after = place(query.cursor, str)
    with call.ctx.store.read() as session:
        owner: str | None = call.actor.id
        if query.user is not None:
            call.need("key.change", Owned(None if query.user == "*" else _owner(session, query.user)))
            owner = None if query.user == "*" else _owner(session, query.user)
        rows = keys.page(session, owner, query.limit + 1, after[0] if after else None)
        names = users.names(session, {r.user_id for r in rows})
        return listed(
            rows, query.limit, lambda r: shapes.key(r, names.get(r.user_id), call.now), lambda r: cursor(r.id)
        )


def create_key(call: Call) -> dict[str, Any]:
    body = call.body(NewKey)
    with call.ctx.store.write() as session:
        owner = _owner(session, body.user) if body.user is not None else call.actor.id
        call.need("key.change", Owned(owner))
        user = users.get(session, owner)
        if user is None or user.disabled_at is not None:
            raise Conflict(say("the account is disabled; its keys would open nothing"))
        row, secret = keys.create(session, owner, users.clean_name(body.name), call.now, body.expires_at)
        shape = shapes.key(row, user.name, call.now)
        audit.add(session, call.actor.id, "key.create", row.id, call.now, after=shape)
    call.ctx.keys_changed()
    return {**shape, "secret": secret}


def revoke_key(call: Call) -> None:
    with call.ctx.store.write() as session:
        row = session.get(ApiKey, call.args["id"])
        if row is None or not call.may("key.change", Owned(row.user_id)):
            raise NotFound(say("there is no such key of yours"))
        if keys.revoke(session, row.id, call.now):
            audit.add(session, call.actor.id, "key.revoke", row.id, call.now, before={"name": row.name})
    call.ctx.keys_changed()


def _owner(session: Any, id_or_name: str) -> str:
    user = users.find(session, id_or_name)
    if user is None:
        raise Invalid.field("user", say("there is nobody with the id or name %(name)s", name=id_or_name))
    return user.id


ROUTES = (
    Route("GET", "/keys", list_keys, "One's own API keys", query=KeyPage),
    Route("POST", "/keys", create_key, "A new key; `secret` is in this answer only", body=NewKey, status=201,
          answers={409: "The account is disabled"}),
    Route("DELETE", "/keys/<id>", revoke_key, "Revokes a key", status=204, answers={404: "No such key"}),
)  # fmt: skip
