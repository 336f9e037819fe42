"""Usage in sums: hours of channels by what they did, a day and in all; requests, tokens and first bytes by person, model and
channel. One reading for REST, CSV and CLI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.spans import STATES, Booked, Hours
from controller.store import channel_states, usage, users
from controller.store.held import held
from controller.store.tables import Node
from controller.usage_days import by_cut, by_day, day_starts

HOUR_MS = 3_600_000
COUNTS = ("requests", "failed", "seconds", "bytes_in", "bytes_out", "prompt_tokens", "completion_tokens")
HOURS = ("reserved", *STATES, "fallback")


@dataclass(slots=True)
class Sum:
    """Requests of one person, model or channel. Tokens None: no engine has reported any."""

    requests: int = 0
    failed: int = 0
    seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    first_bytes: float = 0.0
    answered: int = 0

    def add(self, row: Any) -> None:
        self.requests += row.requests
        self.failed += row.failed
        self.seconds += row.seconds
        self.bytes_in += row.bytes_in
        self.bytes_out += row.bytes_out
        self.first_bytes += row.first_bytes
        self.answered += row.answered
        for name in ("prompt_tokens", "completion_tokens"):
            if (value := getattr(row, name)) is not None:
                setattr(self, name, (getattr(self, name) or 0) + value)

    def shape(self) -> dict[str, Any]:
        first = round(self.first_bytes / self.answered, 4) if self.answered else None
        counts = {name: getattr(self, name) for name in COUNTS}
        return {**counts, "seconds": round(self.seconds, 3), "first_byte_seconds": first}


def summary(
    session: Session,
    start: int,
    end: int,
    now: int,
    zone: ZoneInfo,
    user_id: str | None = None,
    theirs: bool = False,
    channel: tuple[str, str, str] | None = None,
) -> dict[str, Any]:
    """Of [start, end). `user_id`: whose requests and bookings (None: everybody's); `theirs`: hours of their bookings
    alone; `channel` = (id, node id, name) of one channel."""
    rows = usage.sums(session, start, end, user_id, channel[1:] if channel else None)
    only = [channel[0]] if channel else None
    till = min(end, now)
    bookings = held(session, start, till, channel_ids=only, holder_id=user_id if theirs else None)
    days = _theirs(session, start, till, zone, bookings) if theirs else by_day(session, start, till, zone, only)
    whole: dict[str, Hours] = {}
    for (channel_id, _), hours in days.items():
        whole.setdefault(channel_id, Hours()).join(hours)
    mine = bookings if user_id is None or theirs else held(session, start, till, channel_ids=only, holder_id=user_id)
    reserved = _reserved(mine, start, till)
    people, models, places, total = _by(rows, "user_id"), _by(rows, "model"), _by_channel(session, rows), Sum()
    for row in rows:
        total.add(row)
    names = users.names(session, people.keys() | reserved.keys())
    called = channel_states.names(session)
    by_channel = {called.get(i, i): hours for i, hours in whole.items()}
    sums = Hours()
    for hours in whole.values():
        sums.join(hours)
    return {
        "hours": [
            {"channel": called.get(i, i), "day": day, **_hours_shape(hours)} for (i, day), hours in sorted(days.items())
        ],
        "people": [
            {
                "user_id": i,
                "user": names.get(i),
                "reserved": _decimal(reserved.get(i, 0)),
                **people.get(i, Sum()).shape(),
            }
            for i in sorted(people.keys() | reserved.keys(), key=lambda i: (names.get(i) or "", i))
        ],
        "models": [{"model": name, **models[name].shape()} for name in sorted(models)],
        "channels": [
            {
                "channel": name,
                **_hours_shape(by_channel.get(name, Hours())),
                **_renamed(places.get(name, Sum()).shape()),
            }
            for name in sorted(by_channel.keys() | places.keys())
        ],
        "totals": {**_hours_shape(sums), **_renamed(total.shape())},
    }


def _theirs(
    session: Session, start: int, end: int, zone: ZoneInfo, bookings: dict[str, list[Booked]]
) -> dict[tuple[str, str], Hours]:
    """Hours of these bookings alone, by (channel, day)."""
    if start >= end or not bookings:
        return {}
    begins = day_starts(start, end, zone)
    names = {max(start, at): name for at, name in begins}
    found = by_cut(session, start, end, list(names), list(bookings), bookings, booked_only=True)
    return {(channel, names[at]): hours for (channel, at), hours in found.items()}


def _reserved(bookings: dict[str, list[Booked]], start: int, end: int) -> dict[str, int]:
    """Milliseconds that people held, by person."""
    found: dict[str, int] = {}
    for several in bookings.values():
        for b in several:
            found[b.holder_id] = found.get(b.holder_id, 0) + min(b.end, end) - max(b.start, start)
    return found


def _by(rows: Sequence[Any], name: str) -> dict[str, Sum]:
    found: dict[str, Sum] = {}
    for row in rows:
        found.setdefault(getattr(row, name), Sum()).add(row)
    return found


def _by_channel(session: Session, rows: Sequence[Any]) -> dict[str, Sum]:
    nodes = {node.id: node.name for node in session.execute(select(Node.id, Node.name))}
    found: dict[str, Sum] = {}
    for row in rows:
        found.setdefault(f"{nodes.get(row.node_id, row.node_id)}/{row.channel}", Sum()).add(row)
    return found


def _hours_shape(hours: Hours) -> dict[str, float]:
    return {
        "reserved": _decimal(hours.reserved),
        **{state: _decimal(ms) for state, ms in hours.states.items()},
        "fallback": _decimal(hours.fallback),
    }


def _renamed(shape: dict[str, Any]) -> dict[str, Any]:
    """Beside hours, `failed` is the hours' word."""
    return {("failed_requests" if name == "failed" else name): value for name, value in shape.items()}


def _decimal(ms: int) -> float:
    return round(ms / HOUR_MS, 4)
