"""Tell me when a slot gets free: who waits for what, told once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from controller.api.route import Body, Call, Page, Route, cursor, listed, place
from controller.errors import Conflict, Invalid, NotFound
from controller.notify.watching import MINUTE, fitting
from controller.rights import Owned
from controller.said import say
from controller.store import channels, watches
from controller.store.tables import SlotWatch
from controller.times import Instant, Start, text_of

MOST = 20  # of a person, waiting at once
FURTHEST_MS = 366 * 86_400_000


def _filled(text: str | None) -> str | None:
    return text or None


class NewWatch(Body):
    kind: Literal["model", "exclusive"] = "model"
    model: Annotated[str | None, Field(max_length=512), AfterValidator(_filled)] = None
    preset: Annotated[str | None, Field(max_length=200), AfterValidator(_filled)] = None
    channel: str | None = Field(None, max_length=200, description="node/channel; null: any that fits")
    minutes: Annotated[int, Field(ge=1, le=527_040)]
    not_before: Start = Field(None, description='The slot begins then at the earliest; missing or "now": at once')
    not_after: Instant = Field(description="The slot ends by then")


def list_watches(call: Call) -> dict[str, Any]:
    page = call.query(Page)
    before = place(page.cursor, str)
    with call.ctx.store.read() as session:
        rows = watches.page(session, call.actor.id, page.limit + 1, before[0] if before else None)
        names = channels.full_names(session, {r.channel_id for r in rows if r.channel_id})
    return listed(rows, page.limit, lambda r: shape(r, names, call.now), lambda r: cursor(r.id))


def add(call: Call) -> dict[str, Any]:
    body = call.body(NewWatch)
    begin = max(call.now, body.not_before if body.not_before is not None else call.now)
    if body.kind == "model" and not body.model:
        raise Invalid.field("model", say("name the model, or say kind exclusive"))
    if body.kind == "exclusive" and (body.model or body.preset):
        raise Invalid.field("model", say("an exclusive booking loads nothing; leave model and preset out"))
    if body.not_after < begin + body.minutes * MINUTE:
        raise Invalid.field("not_after", say("leaves no room for %(minutes)s minutes", minutes=body.minutes))
    if body.not_after > call.now + FURTHEST_MS:
        raise Invalid.field("not_after", say("lies more than a year ahead"))
    with call.ctx.store.write() as session:
        channel_id = None
        if body.channel is not None:
            found = channels.by_full_name(session, body.channel)
            if found is None or found[0].gone_at is not None:
                raise Invalid.field(
                    "channel", say("there is no channel %(channel)s; name it node/channel", channel=repr(body.channel))
                )
            channel_id = found[0].id
        row = SlotWatch(
            user_id=call.actor.id,
            kind=body.kind,
            model=body.model,
            preset=body.preset,
            channel_id=channel_id,
            minutes=body.minutes,
            not_before=begin,
            not_after=body.not_after,
            created_at=call.now,
        )
        there = fitting(session, call.ctx, row, call.now)
        if there:
            best = there[0]
            raise Conflict(
                say(
                    "such a slot is free already: %(channel)s from %(start)s; book it",
                    channel=best.channel,
                    start=text_of(best.slot.start) or "",
                ),
                suggestions=[w.shape() for w in there[:5]],
            )
        if watches.waiting(session, call.actor.id, call.now) >= MOST:
            raise Conflict(say("you wait for %(most)s slots already; give one up first", most=MOST), suggestions=[])
        session.add(row)
        session.flush()
        return shape(row, {channel_id or "": body.channel or ""}, call.now)


def remove(call: Call) -> None:
    with call.ctx.store.write() as session:
        row = watches.get(session, call.args["id"])
        if row is None or not call.may("target.change", Owned(row.user_id)):
            raise NotFound(say("there is no watch %(id)s", id=call.args["id"]))
        watches.cancel(session, row.id, call.now)


def shape(row: SlotWatch, names: dict[str, str], now: int) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "model": row.model,
        "preset": row.preset,
        "channel": names.get(row.channel_id) if row.channel_id else None,
        "minutes": row.minutes,
        "not_before": text_of(row.not_before),
        "not_after": text_of(row.not_after),
        "state": watches.state(row, now),
        "created_at": text_of(row.created_at),
        "told_at": text_of(row.told_at),
    }


ROUTES = (
    Route("GET", "/watches", list_watches, "Slots that one waits for, newest first", query=Page),
    Route("POST", "/watches", add, "Tells once when a slot of this kind gets free", body=NewWatch, status=201,
          answers={409: "One is free already (`suggestions`), or too many are waited for"}),
    Route("DELETE", "/watches/<id>", remove, "Waits no longer", status=204, answers={404: "No such watch"}),
)  # fmt: skip
