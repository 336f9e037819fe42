"""Notices of the person who calls."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller import shapes
from controller.api.route import Body, Call, Page, Route, cursor, listed, place
from controller.store import notifications


class NoticePage(Page):
    unread: bool = False


class Read(Body):
    ids: list[str] | None = Field(None, max_length=1000, description="None: all of them")


def list_notices(call: Call) -> dict[str, Any]:
    query = call.query(NoticePage)
    before = place(query.cursor, str)
    with call.ctx.store.read() as session:
        rows = notifications.page(session, call.actor.id, query.limit + 1, before[0] if before else None, query.unread)
        unread = notifications.unread(session, call.actor.id)
    return {**listed(rows, query.limit, shapes.notification, lambda r: cursor(r.id)), "unread": unread}


def mark_read(call: Call) -> dict[str, Any]:
    with call.ctx.store.write() as session:
        count = notifications.read(session, call.actor.id, call.body(Read).ids, call.now)
    return {"read": count}


ROUTES = (
    Route("GET", "/notifications", list_notices, "One's notices, newest first", query=NoticePage),
    Route("POST", "/notifications/read", mark_read, "Marks notices as read", body=Read),
)
