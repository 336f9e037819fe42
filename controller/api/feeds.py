"""Calendar feeds: secret addresses for a person's own bookings or a channel's (and wall displays'), made, listed, revoked;
and the feed itself, which needs nothing but its secret and shows what the link's person may see."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from flask import Response, request
from pydantic import Field
from sqlalchemy.orm import Session

from controller import calendars
from controller.api.route import Body, Call, Page, Route, cursor, listed, place
from controller.context import Context
from controller.errors import Conflict, Invalid, NotFound, TooMany
from controller.rights import Owned
from controller.said import say
from controller.store import audit, channels, links, users
from controller.store.tables import SecretLink, User
from controller.throttle import Rate, Throttle
from controller.times import text_of


class NewFeed(Body):
    name: str = Field("", max_length=200)
    kind: Literal["feed", "wall"] = Field("feed", description="`wall`: a wall display's address (administrators)")
    channel: str | None = Field(None, max_length=127, description="node/name; null: the person's own bookings")
    user: str | None = Field(None, max_length=200, description="For somebody else (administrators): id or name")


class FeedPage(Page):
    user: str | None = Field(None, max_length=200, description="Whose (administrators): id or name, `*` = everybody's")


def list_feeds(call: Call) -> dict[str, Any]:
    query = call.query(FeedPage)
    after = place(query.cursor, str)
    with call.ctx.store.read() as session:
        owner: str | None = call.actor.id
        if query.user is not None:
            owner = None if query.user == "*" else _person(session, query.user).id
            call.need("feed.change", Owned(owner))
        rows = links.page(session, owner, query.limit + 1, after[0] if after else None)
        names = users.names(session, {r.user_id for r in rows})
        where = channels.full_names(session, {r.channel_id for r in rows if r.channel_id})
        return listed(rows, query.limit, lambda r: _shape(r, names, where), lambda r: cursor(r.id))


def create_feed(call: Call) -> dict[str, Any]:
    body = call.body(NewFeed)
    with call.ctx.store.write() as session:
        owner = _person(session, body.user) if body.user is not None else users.get(session, call.actor.id)
        if owner is None or owner.disabled_at is not None:
            raise Conflict(say("the account is disabled; its links would open nothing"))
        call.need("feed.change", Owned(owner.id))
        if body.kind == "wall":
            call.need("wall.create")
        row = channels.by_full_name(session, body.channel) if body.channel is not None else None
        if body.channel is not None and row is None:
            raise Invalid.field("channel", say("there is no channel %(channel)s", channel=body.channel))
        channel_id = row[0].id if row is not None else None
        name = " ".join("".join(c if c.isprintable() else " " for c in body.name).split())
        link, secret = links.create(session, owner.id, body.kind, call.now, channel_id, name)
        where = {channel_id: body.channel} if channel_id else {}
        shape = _shape(link, {owner.id: owner.name}, where)
        audit.add(session, call.actor.id, "link.create", link.id, call.now, after=shape)
    path = f"/feed/{secret}.ics" if body.kind == "feed" else f"/wall/{secret}"
    return {**shape, "secret": secret, "url": (call.ctx.settings.public_url or request.url_root.rstrip("/")) + path}


def revoke_feed(call: Call) -> None:
    with call.ctx.store.write() as session:
        row = session.get(SecretLink, call.args["id"])
        if row is None or not call.may("feed.change", Owned(row.user_id)):
            raise NotFound(say("there is no such feed of yours"))
        if links.revoke(session, row.id, call.now):
            audit.add(session, call.actor.id, "link.revoke", row.id, call.now, before={"name": row.name})


def feed(call: Call) -> Response:
    """The calendar. Unknown, revoked and disabled look the same."""
    return serve(call.ctx, call.args["token"])


def serve(ctx: Context, secret: str) -> Response:
    """As above, by the secret: also at the short address outside of /api/v1."""
    wrong, rate = ctx.once("feeds", lambda: (Throttle(free=20), Rate(60, 60)))
    address = f"address {request.remote_addr}"
    wait = wrong.wait(address) or rate.wait(secret)
    if wait > 0:
        raise TooMany(
            say("too often; try again in %(wait)s s", wait=int(wait) + 1), details={"retry_after": int(wait) + 1}
        )
    now = ctx.clock()
    with ctx.store.read() as session:
        found = links.resolve(session, secret, "feed")
        if found is None:
            wrong.failed(address)
            raise NotFound(say("there is no such feed: it was revoked, or the address is incomplete"))
        link, user = found
        body = calendars.of_link(ctx, session, link, user, now)
    if links.stale(link, now):
        with ctx.store.write() as session:
            links.used(session, link.id, now)
    answer = Response(body, mimetype="text/calendar")
    answer.headers["Cache-Control"] = "private, max-age=60"
    answer.headers["Content-Disposition"] = 'inline; filename="slotserve.ics"'
    answer.set_etag(hashlib.sha256(body).hexdigest()[:32])
    answer.make_conditional(request)
    return answer


def _shape(row: SecretLink, names: dict[str, str], where: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "name": row.name,
        "channel": where.get(row.channel_id) if row.channel_id else None,
        "user_id": row.user_id,
        "user": names.get(row.user_id),
        "prefix": row.prefix,
        "created_at": text_of(row.created_at),
        "revoked_at": text_of(row.revoked_at),
        "last_used_at": text_of(row.last_used_at),
        "active": row.revoked_at is None,
    }


def _person(session: Session, id_or_name: str) -> User:
    user = users.find(session, id_or_name)
    if user is None:
        raise Invalid.field("user", say("there is nobody with the id or name %(name)s", name=id_or_name))
    return user


ROUTES = (
    Route("GET", "/feeds", list_feeds, "One's own calendar feeds", query=FeedPage),
    Route("POST", "/feeds", create_feed, "A new feed; its address is in this answer only", body=NewFeed, status=201,
          answers={409: "The account is disabled"}),
    Route("DELETE", "/feeds/<id>", revoke_feed, "Revokes a feed", status=204, answers={404: "No such feed"}),
    Route("GET", "/feed/<token>.ics", feed, "The calendar (iCalendar)", public=True, media=("text/calendar",),
          answers={404: "No such feed", 429: "Asked for too often"}),
)  # fmt: skip
