"""From the rows of what channels did to spans of time: cut at bookings and days, counted by state. Pure.

Half-open spans in milliseconds. A row holds until the channel's next one, at the latest until `end`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

# What a phase counts as; a phase that is not here (unknown, gone) is not known to have been anything.
STATES = ("loading", "served", "failed", "idle", "unknown")
_COUNTS = {
    "ready": "served",
    "loading": "loading",
    "draining": "loading",
    "stopping": "loading",
    "freeing": "loading",
    "retry_wait": "failed",
    "blocked": "failed",
    "off": "idle",
}


class StateRow(Protocol):
    """A row of what a channel did (a ChannelState will do)."""

    @property
    def channel_id(self) -> str: ...
    @property
    def at(self) -> int: ...
    @property
    def phase(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def preset(self) -> str | None: ...
    @property
    def fallback(self) -> bool: ...
    @property
    def reservation_id(self) -> str | None: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking's true window: from its start (or approval, where that came later) to when it really ended."""

    id: str
    channel_id: str
    start: int
    end: int
    holder_id: str = ""
    exclusive: bool = False


class Span(NamedTuple):
    """[start, end) of one state. `booking` = the one that ran; None: nobody's time. `row.reservation_id` also names one
    that was being prepared."""

    start: int
    end: int
    row: StateRow
    booking: Booked | None = None

    @property
    def ms(self) -> int:
        return self.end - self.start

    @property
    def state(self) -> str:
        """One of STATES; a card that its holder has to themselves is `served`, though no model runs."""
        if self.booking is not None and self.booking.exclusive and self.row.phase == "off":
            return "served"
        return _COUNTS.get(self.row.phase, "unknown")


def spans(
    rows: Iterable[StateRow], bookings: Mapping[str, Sequence[Booked]], start: int, end: int, cuts: Sequence[int] = ()
) -> Iterator[Span]:
    """The spans of [start, end) in the order of the rows (by channel and time); `bookings` by channel and start, which
    do not overlap. Also cut at `cuts` (the beginnings of days, in order)."""
    held: StateRow | None = None
    channel, near, b, c = "", bookings.get("", ()), 0, 0  # the next booking and the next cut that count
    for row in _with_end(rows):
        if held is not None:
            mine = held.channel_id
            at = held.at if held.at > start else start
            till = row.at if row.channel_id == mine and row is not _NOTHING and row.at < end else end
            if mine != channel:
                channel, near, b, c = mine, bookings.get(mine, ()), 0, 0
            while at < till:
                while b < len(near) and near[b].end <= at:
                    b += 1
                while c < len(cuts) and cuts[c] <= at:
                    c += 1
                stop = min(till, cuts[c]) if c < len(cuts) else till
                booking = None
                if b < len(near):
                    if near[b].start <= at:
                        booking, stop = near[b], min(stop, near[b].end)
                    else:
                        stop = min(stop, near[b].start)
                yield Span(at, stop, held, booking)
                at = stop
        held = row


class Hours:
    """Milliseconds by state, and how many of them were reserved."""

    __slots__ = ("fallback", "reserved", "states")

    def __init__(self, reserved: int = 0, fallback: int = 0, states: Sequence[int] = (0,) * len(STATES)) -> None:
        self.states = dict(zip(STATES, states, strict=True))
        self.reserved, self.fallback = reserved, fallback

    def add(self, span: Span) -> None:
        ms = span.end - span.start
        self.states[span.state] += ms
        if span.booking is not None:
            self.reserved += ms
        if span.row.fallback:
            self.fallback += ms

    def join(self, other: Hours) -> None:
        for state, ms in other.states.items():
            self.states[state] += ms
        self.reserved += other.reserved
        self.fallback += other.fallback


def joined(found: Iterable[Span]) -> Iterator[Span]:
    """Spans that say the same, one after the other, as one."""
    last: Span | None = None
    for span in found:
        if last is not None and last.end == span.start and _same(last, span):
            last = Span(last.start, span.end, last.row, last.booking)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


class _Nothing:
    """Behind the last row."""

    channel_id = phase = reason = ""
    at = 0
    model = preset = reservation_id = None
    fallback = False


_NOTHING: Any = _Nothing()


def _with_end(rows: Iterable[StateRow]) -> Iterator[StateRow]:
    yield from rows
    yield _NOTHING


def _same(one: Span, other: Span) -> bool:
    a, b = one.row, other.row
    facts = (a.channel_id, a.phase, a.model, a.preset, a.fallback, a.reason, a.reservation_id)
    return one.booking == other.booking and facts == (
        b.channel_id,
        b.phase,
        b.model,
        b.preset,
        b.fallback,
        b.reason,
        b.reservation_id,
    )
