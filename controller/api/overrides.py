"""Overrides: an administrator's manual choice for a channel, until an end or until the next booking has begun."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from sqlalchemy.orm import Session

from controller.api import channels as channel_routes
from controller.api.route import Body, Call, Route
from controller.booking import view
from controller.booking.view import Place
from controller.channel_view import channel_states
from controller.errors import Invalid
from controller.said import say
from controller.scheduling.hints import Hint, incomplete_hint, load_timeout_hint, override_hint
from controller.store import audit, models
from controller.store.launches import missing_of
from controller.store.tables import Channel
from controller.times import Instant, text_of

Text = Annotated[str | None, Field(max_length=512), AfterValidator(lambda text: text or None)]


class Override(Body):
    model: Text = None
    preset: Text = None
    unload: bool = Field(False, description="Load nothing (instead of a model)")
    until: Instant | None = None
    reason: str = Field("", max_length=2000)


def set_override(call: Call) -> dict[str, Any]:
    body = call.body(Override)
    if body.unload == (body.model is not None):
        raise Invalid.field("model", say("say either a model or unload: true"))
    if body.preset is not None and body.model is None:
        raise Invalid.field("preset", say("needs a model"))
    if body.until is not None and body.until <= call.now:
        raise Invalid.field("until", say("is in the past"))
    with call.ctx.store.write() as session:
        channel, node = channel_routes.found(session, call)
        if body.model is not None:
            channel_routes.runnable(session, call, channel, node, body.model, body.preset)
        state = channel_states(session, call.ctx, call.now, {node.id}).get(channel.id)
        hints = [override_hint(state.input, call.now)] if state is not None else []
        hints += _of_model(session, call, Place(channel, node), body.model, body.preset) if body.model else []
        before = _record(channel)
        channel.override_set_at, channel.override_by = call.now, call.actor.id
        channel.override_model, channel.override_preset = body.model, body.preset
        channel.override_until = body.until
        session.touch(channel.id)
        audit.add(
            session, call.actor.id, "channel.override", f"{node.name}/{channel.name}", call.now,
            before=before, after=_record(channel), reason=body.reason,
        )  # fmt: skip
    said = [{"code": hint.code, "message": str(hint)} for hint in hints if hint is not None]
    return {**channel_routes.one_channel(call), "hints": said}


def _of_model(session: Session, call: Call, place: Place, model: str, preset: str | None) -> list[Hint | None]:
    """What may keep it from being loaded at all."""
    settings, found = call.ctx.settings, models.on_channel(session, place.channel, model)
    launch = view.launch_of(session, settings, place, model, preset)
    limit = view.load_timeout_of(launch, settings, place.node)
    return [
        incomplete_hint(missing) if found is not None and (missing := missing_of(found)) else None,
        load_timeout_hint(launch["load_seconds"], limit) if launch is not None and limit is not None else None,
    ]


def clear_override(call: Call) -> dict[str, Any]:
    with call.ctx.store.write() as session:
        channel, node = channel_routes.found(session, call)
        before = _record(channel)
        if before is not None:
            channel.override_set_at = channel.override_by = channel.override_model = None
            channel.override_preset = channel.override_until = None
            session.touch(channel.id)
            audit.add(
                session, call.actor.id, "channel.override_clear", f"{node.name}/{channel.name}", call.now, before=before
            )
    return channel_routes.one_channel(call)


def _record(channel: Channel) -> dict[str, Any] | None:
    if channel.override_set_at is None:
        return None
    return {
        "model": channel.override_model,
        "preset": channel.override_preset,
        "until": text_of(channel.override_until),
    }


_PATH = "/channels/<node>/<name>/override"
ROUTES = (
    Route("PUT", _PATH, set_override, "Sets an override", body=Override, action="channel.override",
          answers={404: "No such channel"}),
    Route("DELETE", _PATH, clear_override, "Takes the override back", action="channel.override",
          answers={404: "No such channel"}),
)  # fmt: skip
