"""Webhooks and chat services: a person's own, and everybody's (administrators'). What opens them is never shown again."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from controller import vault
from controller.api.notice_choice import sent_now
from controller.api.route import Body, Call, Query, Route
from controller.errors import Conflict, Forbidden, Invalid, NotFound
from controller.notify import delivery
from controller.notify.kinds import KINDS, SHARED, TROUBLE
from controller.notify.language import LANGUAGES, zone_of
from controller.notify.ways import chat, webhook
from controller.notify.ways.message import NotDelivered
from controller.rights import Owned
from controller.said import say, words_of
from controller.store import audit, outbox, targets, users
from controller.store.tables import NotificationTarget, Outbox, new_id
from controller.store.users import clean_name
from controller.times import text_of
from controller.vault import Locked, Vault

MOST_OWN, MOST_SHARED = 10, 50
Name = Annotated[str, Field(min_length=1, max_length=200)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
Kinds = Annotated[list[str], Field(max_length=100, description="Of notices; empty: all")]
Language = Annotated[str | None, Field(max_length=16, description="en or zh_Hans; null: its owner's, or the setting")]
Zone = Annotated[str | None, Field(max_length=64, description="As Asia/Shanghai; null: its owner's, or the setting")]


class NewTarget(Body):
    name: Name
    way: Literal["webhook", "chat"]
    url: Url = Field(
        description="https://… for a webhook; for a chat service apprise's URL, or the one it shows itself"
    )
    kinds: Kinds | None = None
    shared: bool = Field(False, description="Everybody's: failures of all channels and nodes go there (administrators)")
    language: Language = None
    zone: Zone = None


class TargetChange(Body):
    name: Name | None = None
    url: Url | None = None
    kinds: Kinds | None = None
    enabled: bool | None = None
    language: Language = None
    zone: Zone = None
    rotate_secret: bool = Field(False, description="A new secret for a webhook; the answer shows it once")


class Which(Query):
    shared: bool = Field(False, description="Everybody's instead of one's own")


def list_targets(call: Call) -> dict[str, Any]:
    shared = call.query(Which).shared
    if shared:
        call.need("target.change", Owned(None))
    with call.ctx.store.read() as session:
        rows = targets.of(session, None if shared else call.actor.id)
        last = outbox.last_of(session, [r.id for r in rows])
    box = vault.of(call.ctx)
    return {"items": [shape(box, r, last.get(r.id)) for r in rows], "next": None}


def add(call: Call) -> dict[str, Any]:
    body = call.body(NewTarget)
    owner = None if body.shared else call.actor.id
    call.need("target.change", Owned(owner))
    url = _url(call, body.way, body.url, owner)
    kinds = _kinds(body.kinds if body.kinds is not None else list(TROUBLE) if body.shared else [], body.shared)
    secret, box = _secret() if body.way == "webhook" else None, vault.of(call.ctx)
    with call.ctx.store.write() as session:
        most = MOST_SHARED if owner is None else MOST_OWN
        if targets.count(session, owner) >= most:
            raise Conflict(say("there are %(most)s targets already; remove one first", most=most))
        row = NotificationTarget(
            user_id=owner,
            name=clean_name(body.name),
            way=body.way,
            url=box.seal(url),
            secret=box.seal(secret) if secret else None,
            kinds=kinds,
            language=_language(body.language),
            zone=_zone(body.zone),
            created_at=call.now,
        )
        session.add(row)
        session.flush()
        audit.add(session, call.actor.id, "target.create", row.id, call.now, after=_record(box, row))
        return {**shape(box, row, None), **({"secret": secret} if secret else {})}


def change(call: Call) -> dict[str, Any]:
    body = call.body(TargetChange)
    given = body.model_dump(exclude_unset=True)
    for field in ("name", "url", "kinds", "enabled"):
        if field in given and given[field] is None:
            raise Invalid.field(field, say("must not be null; leave it out to keep it"))
    with call.ctx.store.read() as session:
        old = _found(session, call)
        url = _url(call, old.way, body.url, old.user_id) if body.url is not None else None
    box = vault.of(call.ctx)
    with call.ctx.store.write() as session:
        row = _found(session, call)
        before = _record(box, row)
        if url is not None:
            row.url = box.seal(url)
        if body.name is not None:
            row.name = clean_name(body.name)
        if body.kinds is not None:
            row.kinds = _kinds(body.kinds, row.user_id is None)
        if body.enabled is not None:
            row.disabled_at = None if body.enabled else row.disabled_at or call.now
        if "language" in given:
            row.language = _language(body.language)
        if "zone" in given:
            row.zone = _zone(body.zone)
        lost = url is not None and row.secret is not None and not _opened(box, row.secret)
        fresh = _secret() if (body.rotate_secret or lost) and row.way == "webhook" else None
        row.secret = box.seal(fresh) if fresh else row.secret
        session.flush()
        audit.add(session, call.actor.id, "target.change", row.id, call.now, before=before, after=_record(box, row))
        return {
            **shape(box, row, outbox.last_of(session, [row.id]).get(row.id)),
            **({"secret": fresh} if fresh else {}),
        }


def remove(call: Call) -> None:
    with call.ctx.store.write() as session:
        row = _found(session, call)
        audit.add(session, call.actor.id, "target.remove", row.id, call.now, before=_record(vault.of(call.ctx), row))
        session.delete(row)


def try_it(call: Call) -> dict[str, Any]:
    settings = call.ctx.settings
    with call.ctx.store.read() as session:
        row = _found(session, call)
        owner = users.get(session, row.user_id) if row.user_id else None
    box = vault.of(call.ctx)
    letter = delivery.to_target(settings, box, row, owner, new_id(), f"test:{row.id}", "test", "", {}, call.now)
    return sent_now(call, letter)


def shape(box: Vault, row: NotificationTarget, last: Outbox | None) -> dict[str, Any]:
    """A target as it is shown; `last`: what became of the newest message to it."""
    url = _opened(box, row.url)
    return {
        "id": row.id,
        "name": row.name,
        "way": row.way,
        "service": chat.service_name(url) if url and row.way == "chat" else None,
        "url": masked(row.way, url),
        "readable": bool(url),
        "kinds": list(row.kinds),
        "shared": row.user_id is None,
        "language": row.language,
        "zone": row.zone,
        "enabled": row.disabled_at is None,
        "created_at": text_of(row.created_at),
        "last": {"state": last.state, "at": text_of(last.sent_at or last.created_at), "error": last.error or None}
        if last
        else None,
    }


def masked(way: str, url: str) -> str:
    """Where it goes, without what opens it; "" of an address that cannot be read any more."""
    if way == "chat" and url:
        return chat.masked(url)
    parts = urlsplit(url)
    if not parts.netloc:
        return ""
    return f"{parts.scheme}://{parts.netloc}{'/…' if parts.path.strip('/') or parts.query else ''}"


def _url(call: Call, way: str, url: str, owner: str | None) -> str:
    """The URL, looked at. A webhook's host is resolved at each sending again."""
    url = url.strip()
    private = owner is None or call.ctx.settings.notify_private_targets or call.actor.role == "admin"
    try:
        if way == "chat":
            chat.check(url, private)
        else:
            parts = webhook.checked(url)
            if not private:
                webhook.public(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    except NotDelivered as err:
        raise Invalid.field("url", words_of(err)) from None
    return url


def _kinds(kinds: list[str], shared: bool) -> list[str]:
    known = SHARED if shared else tuple(KINDS)
    for kind in kinds:
        if kind not in known:
            raise Invalid.field(
                "kinds", say("%(kind)s does not go there; take any of %(list)s", kind=repr(kind), list=", ".join(known))
            )
    return [kind for kind in known if kind in kinds]


def _language(wish: str | None) -> str | None:
    if wish is None or wish in LANGUAGES:
        return wish
    raise Invalid.field("language", say("must be one of %(list)s", list=", ".join(LANGUAGES)))


def _zone(wish: str | None) -> str | None:
    if wish is None or str(zone_of(wish)) == wish:
        return wish
    raise Invalid.field("zone", say("there is no time zone %(zone)s; write it as Asia/Shanghai", zone=repr(wish)))


def _secret() -> str:
    return f"whsec_{secrets.token_urlsafe(32)}"


def _opened(box: Vault, kept: str) -> str:
    """A text as it is; "" of one that cannot be read any more, for its key is lost."""
    try:
        return box.open(kept)
    except Locked:
        return ""


def _record(box: Vault, row: NotificationTarget) -> dict[str, Any]:
    """For the audit trail: nothing that opens the target."""
    return {
        "name": row.name,
        "way": row.way,
        "url": masked(row.way, _opened(box, row.url)),
        "kinds": list(row.kinds),
        "shared": row.user_id is None,
        "enabled": row.disabled_at is None,
    }


def _found(session: Any, call: Call) -> NotificationTarget:
    row = targets.get(session, call.args["id"])
    if row is None:
        raise NotFound(say("there is no target %(id)s", id=call.args["id"]))
    if not call.may("target.change", Owned(row.user_id)):
        if row.user_id is None:
            raise Forbidden(say("only an administrator may do this"))
        raise NotFound(say("there is no target %(id)s", id=call.args["id"]))  # whose it is, is nobody's business
    return row


_CHANGE = {404: "No such target"}
ROUTES = (
    Route("GET", "/notification-targets", list_targets, "One's webhooks and chat services, or everybody's", query=Which),
    Route("POST", "/notification-targets", add, "Adds a webhook or a chat service; a webhook's secret is shown once",
          body=NewTarget, status=201, answers={409: "Too many"}),
    Route("PATCH", "/notification-targets/<id>", change, "Changes a target", body=TargetChange, answers=_CHANGE),
    Route("DELETE", "/notification-targets/<id>", remove, "Removes a target", status=204, answers=_CHANGE),
    Route("POST", "/notification-targets/<id>/test", try_it, "Sends a test there, at once",
          answers={**_CHANGE, 429: "Other tests are under way"}),
)  # fmt: skip
