"""Usage: requests served, and sums of them and of channels' hours. One's own; everybody's for administrators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flask import Response
from pydantic import Field
from sqlalchemy.orm import Session

from controller import usage_view
from controller.api.route import Call, Page, Query, Route, cursor, place
from controller.csv_text import csv_text
from controller.errors import Invalid
from controller.rights import Owned
from controller.said import say
from controller.store import channels, usage, users
from controller.times import Instant, text_of

MONTH_MS = 30 * 86_400_000
MOST_MS = 3660 * 86_400_000


class UsagePage(Page):
    start: Instant | None = Field(None, alias="from")
    end: Instant | None = Field(None, alias="to")
    user: str | None = Field(None, max_length=200, description="Id or name (administrators); `*` = everybody")
    by: Literal["key"] | None = Field(None, description="`key`: also apart by API key")


Form = Literal["json", "csv"]
_CSV_ROWS = 1_000_000  # a table for a spreadsheet is whole


class UsageTable(UsagePage):
    format: Form = Field("json", description="`csv`: the whole table for a spreadsheet, without pages")


class SummaryQuery(Query):
    start: Instant | None = Field(None, alias="from", description="Thirty days before `to` when missing")
    end: Instant | None = Field(None, alias="to", description="Now when missing")
    user: str | None = Field(None, max_length=200, description="Id or name; hours are then those of their bookings")
    channel: str | None = Field(None, max_length=127, description="node/name")
    zone: str = Field("UTC", max_length=64, description="Whose days are counted, such as Europe/Berlin")
    format: Form = Field("json", description="`csv`: one of the tables, for a spreadsheet")
    table: Literal["hours", "people", "models", "channels"] = Field("hours", description="Which one, with `csv`")


def list_usage(call: Call) -> dict[str, Any] | Response:
    query = call.query(UsageTable)
    start, end = _range(call, query.start, query.end)
    at = place(query.cursor, int)
    offset = max(0, at[0]) if at else 0
    limit = query.limit if query.format == "json" else _CSV_ROWS
    with call.ctx.store.read() as session:
        who = _whose(call, session, query.user)
        rows = usage.totals(session, start, end, who, limit + 1, offset, query.by == "key")
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
        for r in rows[:limit]
    ]
    if query.format == "csv":
        heads = [*_HEADS, *(("key_id", "key") if query.by else ())]
        return _csv("usage", heads, items)
    return {
        "from": text_of(start),
        "to": text_of(end),
        "items": items,
        "next": cursor(offset + limit) if len(rows) > limit else None,
    }


def summary(call: Call) -> dict[str, Any] | Response:
    query = call.query(SummaryQuery)
    start, end = _range(call, query.start, query.end)
    try:
        zone = ZoneInfo(query.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid.field(
            "zone", say("there is no time zone %(zone)s; write it as Europe/Berlin", zone=repr(query.zone))
        ) from None
    with call.ctx.store.read() as session:
        everybody = query.user in (None, "*") and call.may("usage.see", Owned(None))
        who = None if everybody else _whose(call, session, query.user)
        row = channels.by_full_name(session, query.channel) if query.channel is not None else None
        if query.channel is not None and row is None:
            raise Invalid.field("channel", say("there is no channel %(channel)s", channel=query.channel))
        place = (row[0].id, row[1].id, row[0].name) if row is not None else None
        theirs = who is not None and query.user is not None
        found = usage_view.summary(session, start, end, call.now, zone, who, theirs, place)
    if query.format == "csv":
        rows = found[query.table]
        return _csv(f"usage-{query.table}", _TABLES[query.table], rows)
    return {"from": text_of(start), "to": text_of(end), "zone": zone.key, **found}


def _range(call: Call, start: int | None, end: int | None) -> tuple[int, int]:
    last = end if end is not None else call.now
    first = start if start is not None else last - MONTH_MS
    if first >= last:
        raise Invalid.field("to", say("must be later than `from`"))
    if last - first > MOST_MS:
        raise Invalid.field("from", say("lies more than ten years before `to`"))
    return first, last


def _whose(call: Call, session: Session, user: str | None) -> str | None:
    """The id of the person who is asked about; None = everybody. Raises Forbidden, Invalid."""
    if user is None:
        return call.actor.id
    known = users.find(session, user) if user != "*" else None
    call.need("usage.see", Owned(known.id if known else None))
    if known is None and user != "*":
        raise Invalid.field("user", say("there is nobody with the id or name %(name)s", name=user))
    return known.id if known else None


def _csv(name: str, heads: Sequence[str], rows: Sequence[dict[str, Any]]) -> Response:
    answer = Response(csv_text(heads, ([row[h] for h in heads] for row in rows)), mimetype="text/csv")
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    answer.headers["Cache-Control"] = "private, no-cache"
    return answer


_HEADS = (
    *("user_id", "user", "channel", "model", "requests", "failed", "seconds", "bytes_in", "bytes_out"),
    *("first_byte_seconds", "prompt_tokens", "completion_tokens"),
)
_SUMS = (*usage_view.COUNTS, "first_byte_seconds")
_TABLES = {
    "hours": ("channel", "day", *usage_view.HOURS),
    "people": ("user_id", "user", "reserved", *_SUMS),
    "models": ("model", *_SUMS),
    "channels": ("channel", *usage_view.HOURS, *("failed_requests" if n == "failed" else n for n in _SUMS)),
}
_MEDIA = ("application/json", "text/csv")
ROUTES = (
    Route("GET", "/usage", list_usage, "Requests and tokens by person, channel and model", query=UsageTable,
          media=_MEDIA),
    Route("GET", "/usage/summary", summary, "Hours by what channels did; requests and tokens in sums", query=SummaryQuery,
          media=_MEDIA),
)  # fmt: skip
