"""Notices of the person who calls; and for administrators, what has become of the messages outside."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from controller.api.route import Body, Call, Page, Route, cursor, listed, place
from controller.errors import Conflict, NotFound
from controller.notify import trouble, wording
from controller.notify.kinds import KINDS
from controller.said import say
from controller.store import audit, notifications, outbox
from controller.store.tables import Notification, Outbox
from controller.times import text_of


class NoticePage(Page):
    unread: bool = False
    kind: str | None = Field(None, max_length=32, description=f"One of {', '.join(KINDS)}")


class Read(Body):
    ids: list[str] | None = Field(None, max_length=1000, description="None: all of them")


class Messages(Page):
    state: Literal["waiting", "sent", "failed", "dropped"] | None = None


def list_notices(call: Call) -> dict[str, Any]:
    query = call.query(NoticePage)
    before = place(query.cursor, str)
    with call.ctx.store.read() as session:
        rows = notifications.page(
            session, call.actor.id, query.limit + 1, before[0] if before else None, query.unread, query.kind
        )
        unread = notifications.unread(session, call.actor.id)
    return {**listed(rows, query.limit, notice, lambda r: cursor(r.id)), "unread": unread}


def mark_read(call: Call) -> dict[str, Any]:
    with call.ctx.store.write() as session:
        count = notifications.read(session, call.actor.id, call.body(Read).ids, call.now)
    return {"read": count}


def messages(call: Call) -> dict[str, Any]:
    query = call.query(Messages)
    before = place(query.cursor, str)
    with call.ctx.store.read() as session:
        rows = outbox.page(session, query.limit + 1, before[0] if before else None, query.state)
        return listed(rows, query.limit, lambda r: message(*r), lambda r: cursor(r[0].id))


def send_again(call: Call) -> dict[str, Any]:
    with call.ctx.store.write() as session:
        row = session.get(Outbox, call.args["id"])
        if row is None:
            raise NotFound(say("there is no message %(id)s", id=call.args["id"]))
        if not outbox.again(session, row.id, call.now):
            raise Conflict(
                say("the message is %(state)s; only one that failed or was dropped can be sent again", state=row.state)
            )
        audit.add(session, call.actor.id, "message.retry", row.id, call.now)
        session.refresh(row)
        return message(row, None, None)


def delivery(call: Call) -> dict[str, Any]:
    return trouble.state(call.ctx, call.now)


def notice(row: Notification) -> dict[str, Any]:
    """A notice as it is shown; the words in the reader's language are made of `facts` (controller/notify/wording.py)."""
    facts = notifications.facts_of(row)
    said = wording.render(row.kind, facts)
    return {
        "id": row.id,
        "kind": row.kind,
        "title": said.title,
        "text": row.text,
        "subject": row.subject,
        "channel": facts.get("channel"),
        "reservation_id": facts.get("reservation_id"),
        "link": said.link,
        "facts": facts,
        "at": text_of(row.at),
        "read_at": text_of(row.read_at),
    }


def message(row: Outbox, person: str | None, target: str | None) -> dict[str, Any]:
    """A message outside, without what opens its target."""
    facts = (row.payload or {}).get("facts") or {}
    return {
        "id": row.id,
        "kind": row.kind,
        "way": row.way,
        "to": person if row.way == "email" else target,
        "title": wording.render(row.kind, facts).title,
        "state": row.state,
        "attempts": row.attempts,
        "created_at": text_of(row.created_at),
        "due_at": text_of(row.due_at) if row.state == "waiting" else None,
        "sent_at": text_of(row.sent_at),
        "error": row.error or None,
    }


ROUTES = (
    Route("GET", "/notifications", list_notices, "One's notices, newest first", query=NoticePage),
    Route("POST", "/notifications/read", mark_read, "Marks notices as read", body=Read),
    Route("GET", "/notifications/outbox", messages, "Messages by mail, webhook and chat, newest first", query=Messages,
          action="message.see"),
    Route("POST", "/notifications/outbox/<id>/retry", send_again, "Sends a message again that did not get through",
          action="message.see", answers={404: "No such message", 409: "It waits, or was sent"}),
    Route("GET", "/notifications/delivery", delivery, "Whether messages get through, and where they do not",
          action="message.see"),
)  # fmt: skip
