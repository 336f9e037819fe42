"""A channel's past as a strip: what it did when, whose booking it was, and the requests. As plain data for one viewer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller import shapes
from controller.console import show, strip
from controller.context import Context
from controller.rights import Actor
from controller.scheduling.plan import HOUR
from controller.store import channel_states as history
from controller.store import reservations, users
from controller.store.tables import RAN, Channel, Node, Reservation, Usage

RANGES = {"6h": 6, "24h": 24, "7d": 168}
BUCKETS = 72


@dataclass(frozen=True, slots=True)
class Lane:
    """A booking in the strip."""

    x: float
    width: float
    label: str
    mine: bool


@dataclass(frozen=True, slots=True)
class Past:
    """The strip of [start, end)."""

    start: int
    end: int
    hours: str
    pieces: list[strip.Piece]
    totals: dict[str, float]
    lanes: list[Lane]
    requests: int
    most: int  # of them in one of the chart's stretches
    line: tuple[str, str]
    everybody: bool
    ticks: list[tuple[float, str]]  # per cent, label


def read(
    db: Session, ctx: Context, actor: Actor, channel: Channel, node: Node, now: int, zone: tzinfo, hours: str
) -> Past:
    grain = RANGES[hours] * HOUR // 720  # two units: a strip that crept on with every look would never be "unchanged"
    end = (now // grain + 1) * grain
    start = end - RANGES[hours] * HOUR
    booked = [
        r for r in reservations.page(db, now, 500, start=start, end=end, channel_id=channel.id) if r.status in RAN
    ]
    exclusive = {r.id for r in booked if r.kind == "exclusive"}
    changes = [
        strip.Change(
            r.at, r.phase, r.model, r.preset, r.fallback, r.phase == "off" and _within(r, booked, exclusive), r.reason
        )
        for r in history.between(db, [channel.id], start, end).get(channel.id, [])
    ]
    names = users.names(db, shapes.people_of(booked))
    everybody = actor.role == "admin"
    counts = _requests(db, node.id, channel.name, start, end, None if everybody else actor.id)
    found = strip.pieces(changes, start, end)
    return Past(
        start,
        end,
        hours,
        found,
        strip.totals(found),
        [lane for r in booked if (lane := _lane(ctx, actor, r, names, start, end))],
        sum(counts),
        max(counts),
        strip.line(counts),
        everybody,
        _ticks(start, end, zone),
    )


def _ticks(start: int, end: int, zone: tzinfo) -> list[tuple[float, str]]:
    """The axis: the clock, at midnight the day."""
    offset = show.moment(end, zone).utcoffset()
    found = strip.ticks(start, end, round(offset.total_seconds() * 1000) if offset else 0)
    labels = []
    for at in found[:-1]:
        local = show.moment(at, zone)
        text = show.date(local) if local.hour == local.minute == 0 else local.strftime("%H:%M")
        labels.append((round(100 * (at - start) / (end - start), 2), text))
    return labels


def _within(row: Any, booked: list[Reservation], exclusive: set[str]) -> bool:
    return any(r.id in exclusive and r.starts_at <= row.at < (r.ended_at or r.ends_at) for r in booked)


def _lane(ctx: Context, actor: Actor, row: Reservation, names: dict[str, str], start: int, end: int) -> Lane | None:
    box = strip.window(start, end, row.starts_at, row.ended_at or row.ends_at)
    if box is None:
        return None
    shown = shapes.holder(row, names, actor, ctx.settings.show_holders)["holder"] or ""
    return Lane(*box, shown, row.holder_id == actor.id)


def _requests(db: Session, node_id: str, channel: str, start: int, end: int, user_id: str | None) -> list[int]:
    """Requests in each of BUCKETS equal stretches."""
    width = max(1, (end - start) // BUCKETS)
    bucket = ((Usage.at - start) // width).label("bucket")
    query = (
        select(bucket, func.count())
        .where(Usage.node_id == node_id, Usage.channel == channel, Usage.at >= start, Usage.at < end)
        .group_by(bucket)
    )
    if user_id is not None:
        query = query.where(Usage.user_id == user_id)
    counts = [0] * BUCKETS
    for place, count in db.execute(query):
        counts[min(BUCKETS - 1, int(place))] += count
    return counts
