"""What a channel did, as spans of time: the strip below its timetable."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller import spans
from controller.api import channels as channel_routes
from controller.api.route import MAX_LIMIT, Call, Query, Route, cursor, place
from controller.errors import Invalid
from controller.said import say
from controller.store import channel_states
from controller.store.held import held, starts
from controller.times import Instant, text_of

DAY_MS = 86_400_000


class HistoryPage(Query):
    start: Instant | None = Field(None, alias="from", description="A day before `to` when missing")
    end: Instant | None = Field(None, alias="to", description="Now when missing; the future is not history")
    limit: int = Field(MAX_LIMIT, ge=1, le=MAX_LIMIT, description="Spans a page")
    cursor: str | None = Field(None, max_length=2000, description="`next` of the page before")


def history(call: Call) -> dict[str, Any]:
    query = call.query(HistoryPage)
    end = query.end if query.end is not None else call.now
    start = query.start if query.start is not None else min(end, call.now) - DAY_MS
    if start >= end:
        raise Invalid.field("to", say("must be later than `from`"))
    after = place(query.cursor, int)
    begin, till = max(start, after[0]) if after else start, min(end, call.now)
    with call.ctx.store.read() as session:
        channel, node = channel_routes.found(session, call)
        booked = held(session, begin, till, channel_ids=[channel.id])
        rows = channel_states.stream(session, [channel.id], begin, till)
        found: list[spans.Span] = []
        following = None
        for span in spans.joined(spans.spans(rows, booked, begin, till)):
            if len(found) == query.limit:
                following = cursor(span.start)
                break
            found.append(span)
        begins = starts(session, {s.row.reservation_id for s in found if s.row.reservation_id})
    return {
        "channel": f"{node.name}/{channel.name}",
        "from": text_of(start),
        "to": text_of(end),
        "items": [_shape(s, begins) for s in found],
        "next": following,
    }


def _shape(span: spans.Span, begins: dict[str, int]) -> dict[str, Any]:
    row = span.row
    coming = begins.get(row.reservation_id or "", 0) >= span.end
    return {
        "from": text_of(span.start),
        "to": text_of(span.end),
        "phase": row.phase,
        "state": span.state,
        "model": row.model,
        "preset": row.preset,
        "fallback": row.fallback,
        "reservation": span.booking.id if span.booking else None,
        "preparing": row.reservation_id if coming else None,
        "reason": row.reason or None,
    }


ROUTES = (
    Route("GET", "/channels/<node>/<name>/history", history, "What the channel did", query=HistoryPage,
          action="channel.see", answers={404: "No such channel"}),
)  # fmt: skip
