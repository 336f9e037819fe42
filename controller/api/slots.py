"""Where a booking would fit: the nearest free windows across the fleet, best first, and why."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from controller.api.route import MAX_LIMIT, Call, Page, Route
from controller.booking import free, view
from controller.errors import Invalid
from controller.said import say
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
        raise Invalid.field("model", say("name the model, or ask for kind=exclusive"))
    if kind == "exclusive" and query.model:
        raise Invalid.field("model", say("an exclusive booking loads nothing; leave model out"))
    with call.ctx.store.read() as session:
        only = None
        if query.channel is not None:
            place = view.find_place(session, query.channel)
            if place is None:
                raise Invalid.field(
                    "channel", say("there is no channel %(channel)s; name it node/channel", channel=repr(query.channel))
                )
            only = [place.channel.id]
        if query.model and models.find(session, query.model) is None:
            raise Invalid.field(
                "model", say("there is no model %(model)s; see the list of models", model=repr(query.model))
            )
        if query.model and query.preset and presets.find(session, query.model, query.preset) is None:
            raise Invalid.field(
                "preset",
                say("there is no preset %(preset)s of %(model)s", preset=repr(query.preset), model=repr(query.model)),
            )
        wanted = query.after if query.after is not None and query.after > call.now else call.now
        person = (call.actor.id, call.actor.role)
        wish = free.Wish(kind, query.model, query.preset, round(query.minutes * 60_000), wanted, person)
        found = free.windows(session, call.ctx, wish, call.now, channel_ids=only, limit=query.limit, earliest=wanted)
    return {"items": found, "next": None}


ROUTES = (Route("GET", "/slots", slots, "The nearest free windows, best first", query=Slots),)
