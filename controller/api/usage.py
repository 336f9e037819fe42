"""Requests served: one's own; everybody's for administrators."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from controller.api.route import Call, Page, Route, cursor, place
from controller.errors import Invalid
from controller.rights import Owned
from controller.store import usage, users
from controller.times import Instant, text_of

MONTH_MS = 30 * 86_400_000


class UsagePage(Page):
    start: Instant | None = Field(None, alias="from")
    end: Instant | None = Field(None, alias="to")
    user: str | None = Field(None, max_length=200, description="Id or name (administrators); `*` = everybody")
    by: Literal["key"] | None = Field(None, description="`key`: also apart by API key")


def list_usage(call: Call) -> dict[str, Any]:
    query = call.query(UsagePage)
    at = place(query.cursor, int)
    end = query.end if query.end is not None else call.now
    start = query.start if query.start is not None else end - MONTH_MS
    if start >= end:
        raise Invalid.field("to", "must be later than `from`")
    offset = max(0, at[0]) if at else 0
    with call.ctx.store.read() as session:
        who: str | None = call.actor.id
        if query.user is not None:
            known = users.find(session, query.user) if query.user != "*" else None
            call.need("usage.see", Owned(known.id if known else None))
            if known is None and query.user != "*":
                raise Invalid.field("user", f"there is nobody with the id or name {query.user}")
            who = known.id if known else None
        rows = usage.totals(session, start, end, who, query.limit + 1, offset, query.by == "key")
    items = [
        {
            "user_id": r.user_id,
            "user": r.user,
            "channel": r.channel,
            "model": r.model,
            "requests": r.requests,
            "failed": r.failed,
            "seconds": r.seconds,
            "bytes_in": r.bytes_in,
            "bytes_out": r.bytes_out,
            "first_byte_seconds": None if r.first_byte_seconds is None else round(r.first_byte_seconds, 4),
            "prompt_tokens": r.prompt_tokens,
            "completion_tokens": r.completion_tokens,
            **({"key_id": r.key_id, "key": r.key} if query.by else {}),
        }
        for r in rows[: query.limit]
    ]
    return {
        "from": text_of(start),
        "to": text_of(end),
        "items": items,
        "next": cursor(offset + query.limit) if len(rows) > query.limit else None,
    }


ROUTES = (Route("GET", "/usage", list_usage, "Requests and tokens by person, channel and model", query=UsagePage),)
