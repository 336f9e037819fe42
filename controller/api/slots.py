"""Where a booking would fit: the nearest free windows across the fleet, best first, and why."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from controller.api.route import MAX_LIMIT, Call, Page, Route
from controller.booking import free, view
from controller.errors import Invalid
from controller.store import models, presets
from controller.times import Start


class Slots(Page):
    limit: int = Field(10, ge=1, le=MAX_LIMIT)
    model: str | None = Field(None, max_length=512)
    preset: str | None = Field(None, max_length=200)
    minutes: float = Field(60, gt=0, le=527_040, allow_inf_nan=False)
    after: Start = Field(None, description='Near to this instant; missing or "now": now')
    kind: Literal["model", "exclusive"] | None = Field(None, description="Missing: model where one is named")
    channel: str | None = Field(None, max_length=200, description="Only this one (node/channel)")


def slots(call: Call) -> dict[str, Any]:
    query = call.query(Slots)
    kind = query.kind or ("model" if query.model else "exclusive")
    if kind == "model" and not query.model:
        raise Invalid.field("model", "name the model, or ask for kind=exclusive")
    if kind == "exclusive" and query.model:
        raise Invalid.field("model", "an exclusive booking loads nothing; leave model out")
    with call.ctx.store.read() as session:
        only = None
        if query.channel is not None:
            place = view.find_place(session, query.channel)
            if place is None:
                raise Invalid.field("channel", f"there is no channel {query.channel!r}; name it node/channel")
            only = [place.channel.id]
        if query.model and models.find(session, query.model) is None:
            raise Invalid.field("model", f"there is no model {query.model!r}; see the list of models")
        if query.model and query.preset and presets.find(session, query.model, query.preset) is None:
            raise Invalid.field("preset", f"there is no preset {query.preset!r} of {query.model!r}")
        wanted = query.after if query.after is not None and query.after > call.now else call.now
        person = (call.actor.id, call.actor.role)
        wish = free.Wish(kind, query.model, query.preset, round(query.minutes * 60_000), wanted, person)
        found = free.windows(session, call.ctx, wish, call.now, channel_ids=only, limit=query.limit, earliest=wanted)
    return {"items": found, "next": None}


ROUTES = (Route("GET", "/slots", slots, "The nearest free windows, best first", query=Slots),)
