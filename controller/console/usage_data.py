"""What the usage page shows: requests and tokens over time and by person, model or channel; hours by what channels did.

One's own requests and bookings; everybody's for administrators (right `usage.see`). What channels did is nobody's secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import BigInteger, cast, func, select
from sqlalchemy.orm import Session

from controller.context import Context
from controller.spans import Hours
from controller.store import channel_states, users
from controller.store import usage as usage_store
from controller.store.held import held
from controller.store.tables import Reservation, Usage
from controller.usage_days import by_day

HOUR = 3_600_000
UTC = ZoneInfo("UTC")
RANGES = {"24h": (24, 24), "7d": (168, 28), "30d": (720, 30), "90d": (2160, 90)}  # hours, bars
MOST = 5000


@dataclass(slots=True)
class Sum:
    """Requests of a person, a model or a channel."""

    name: str
    requests: int = 0
    failed: int = 0
    seconds: float = 0.0
    prompt: int = 0
    completion: int = 0


@dataclass(slots=True)
class Bar:
    """One stretch of time; heights are per cent of the chart's."""

    at: int
    requests: int
    tokens: int
    x: float = 0.0
    width: float = 0.0
    height: float = 0.0


@dataclass(slots=True)
class ChannelHours:
    """Hours of a channel by state, as shares of what is known of it."""

    name: str
    hours: dict[str, float]
    reserved: float
    fallback: float
    pieces: list[tuple[str, float, float]] = field(default_factory=list)  # state, x, width in per cent


@dataclass(slots=True)
class View:
    start: int
    end: int
    total: Sum
    bars: list[Bar]
    top: int
    scale: int  # what the height of the chart stands for
    bar_seconds: float
    by: dict[str, list[Sum]]
    channels: list[ChannelHours]
    holders: list[tuple[str, float, int]]  # name, hours booked, bookings
    models: list[tuple[str, float, int]]


def build(ctx: Context, now: int, hours: str, user_id: str | None) -> View:
    """Of the last hours; `user_id` None: everybody's."""
    length, count = RANGES[hours]
    width = length * HOUR // count
    end = (now // width + 1) * width if hours == "24h" else now
    start = end - length * HOUR
    with ctx.store.read() as db:
        rows = usage_store.totals(db, start, end, user_id, MOST, 0)
        bars, scale = _bars(db, start, width, count, user_id)
        busy = _channels(db, start, min(end, now))
        holders, models = _booked(db, start, min(end, now), user_id)
    by = {key: _grouped(rows, key) for key in ("user", "model", "channel")}
    total = Sum("")
    for row in rows:
        _add(total, row)
    top = max((b.requests for b in bars), default=0)
    return View(start, end, total, bars, top, scale, width / 1000, by, busy, holders, models)


def _scale(top: int) -> int:
    """The next even round figure from the highest bar on, so that half of it can be written at the axis: 56 -> 60."""
    step = 10 ** max(0, len(str(top)) - 2)
    return next(
        s for f in (2, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40, 50, 60, 80, 100) if (s := f * step) >= top and s % 2 == 0
    )


def _grouped(rows: Iterable[Any], key: str) -> list[Sum]:
    sums: dict[str, Sum] = {}
    for row in rows:
        name = getattr(row, key) or ""
        _add(sums.setdefault(name, Sum(name)), row)
    return sorted(sums.values(), key=lambda s: -s.requests)


def _add(total: Sum, row: Any) -> None:
    total.requests += row.requests
    total.failed += row.failed or 0
    total.seconds += row.seconds or 0
    total.prompt += row.prompt_tokens or 0
    total.completion += row.completion_tokens or 0


def _bars(db: Session, start: int, width: int, count: int, user_id: str | None) -> tuple[list[Bar], int]:
    place = ((Usage.at - start) // width).label("place")
    tokens = func.coalesce(Usage.prompt_tokens, 0) + func.coalesce(Usage.completion_tokens, 0)
    query = (
        select(place, func.count(), cast(func.sum(tokens), BigInteger))
        .where(Usage.at >= start, Usage.at < start + width * count)
        .group_by(place)
    )
    if user_id is not None:
        query = query.where(Usage.user_id == user_id)
    bars = [Bar(start + i * width, 0, 0, x=100 * i / count, width=100 / count) for i in range(count)]
    for at, requests, sum_of in db.execute(query):
        bar = bars[min(count - 1, int(at))]
        bar.requests, bar.tokens = requests, int(sum_of or 0)
    scale = _scale(max((b.requests for b in bars), default=0))
    for bar in bars:
        bar.height = 100 * bar.requests / scale
    return bars, scale


def _channels(db: Session, start: int, end: int) -> list[ChannelHours]:
    found: dict[str, Hours] = {}
    for (channel_id, _), day in by_day(db, start, end, UTC).items():
        found.setdefault(channel_id, Hours()).join(day)
    names = channel_states.names(db)
    made = []
    for channel_id, sums in found.items():
        hours = {state: ms / HOUR for state, ms in sums.states.items()}
        one = ChannelHours(names.get(channel_id, "?"), hours, sums.reserved / HOUR, sums.fallback / HOUR)
        whole, x = sum(hours.values()) or 1.0, 0.0
        for state, value in hours.items():
            if value > 0:
                share = 100 * value / whole
                one.pieces.append((state, round(x, 2), round(share, 2)))
                x += share
        made.append(one)
    return sorted(made, key=lambda c: c.name)


def _booked(
    db: Session, start: int, end: int, user_id: str | None
) -> tuple[list[tuple[str, float, int]], list[tuple[str, float, int]]]:
    """Hours that were booked, by person and by model."""
    windows = held(db, start, end, holder_id=user_id)
    ids = [b.id for several in windows.values() for b in several]
    models: dict[str, str | None] = {}
    for i in range(0, len(ids), 500):
        chosen = select(Reservation.id, Reservation.model).where(Reservation.id.in_(ids[i : i + 500]))
        models.update({row[0]: row[1] for row in db.execute(chosen)})
    people: dict[str, list[float]] = {}
    what: dict[str, list[float]] = {}
    for several in windows.values():
        for booked in several:
            hours = (min(booked.end, end) - max(booked.start, start)) / HOUR
            for sums, key in ((people, booked.holder_id), (what, models.get(booked.id) or "")):
                entry = sums.setdefault(key, [0.0, 0])
                entry[0] += hours
                entry[1] += 1
    names = users.names(db, people)
    by_person = sorted(((names.get(i, "?"), h, int(n)) for i, (h, n) in people.items()), key=lambda x: -x[1])
    by_model = sorted(((m, h, int(n)) for m, (h, n) in what.items()), key=lambda x: -x[1])
    return by_person, by_model
