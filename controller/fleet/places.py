"""Where a node's channels have which model: what answers now, what is about to, what the plan has next. No I/O.

There is a row for each stretch of each channel of the fleet, so rows are tuples of shared strings; a message is made
only of the few that are told (controller/fleet/directory.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import NamedTuple

from controller.fleet.live import LiveNode
from protos import fleet_pb2, types_pb2

OPEN, SHUT, WAITING, NEXT = range(4)  # kinds of places: ready for everybody; reserved; not ready; to come
MOST_NEXT, MOST_WINDOWS = 3, 8  # a channel's stretches to come; reservations of one stretch


class Window(NamedTuple):
    """A reservation of a place, without names."""

    start: int
    end: int
    kind: str
    holder_id: str
    participant_ids: tuple[str, ...]


class Row(NamedTuple):
    """A place: a model on a channel from `start` until `end` (0: not known)."""

    node: str
    channel: str
    gateway_url: str
    relay_address: str
    model: str
    preset: str | None
    ready: bool
    start: int
    end: int
    windows: tuple[Window, ...]

    def kind(self, now: int) -> int:
        if self.start > now:
            return NEXT
        if not self.ready:
            return WAITING
        return SHUT if any(w.start <= now < w.end for w in self.windows) else OPEN

    def message(self) -> fleet_pb2.Place:
        return fleet_pb2.Place(
            node=self.node,
            channel=self.channel,
            gateway_url=self.gateway_url,
            relay_address=self.relay_address,
            model=self.model,
            preset=self.preset,
            ready=self.ready,
            from_ms=self.start,
            until_ms=self.end,
            access=[
                types_pb2.Access(
                    kind=w.kind,
                    holder_id=w.holder_id,
                    participant_ids=w.participant_ids,
                    starts_at_ms=w.start,
                    ends_at_ms=w.end,
                )
                for w in self.windows
            ],
        )


class Span(NamedTuple):
    """A stretch with one target. `until` 0: not known; `target` "": nothing. `offered`: where it is loaded for a booking to
    come, nobody is told of the seconds for which it may be ready before."""

    at: int
    until: int
    target: str
    offered: int


def places_of(node: str, said: LiveNode, plan: types_pb2.Plan, now: int) -> list[Row]:
    """All places of a node, by what it says of itself and its plan."""
    url = said.gateway_urls[0] if said.gateway_urls else ""
    return [
        Row(node, channel.channel, url, said.relay_address, *place)
        for channel in plan.channels
        for place in _of_channel(channel, said, now)
    ]


_Place = tuple[str, str | None, bool, int, int, tuple[Window, ...]]  # of a Row, from `model` on


def _of_channel(channel: types_pb2.ChannelPlan, said: LiveNode, now: int) -> Iterable[_Place]:
    windows = _windows(channel.steps)
    launches = {launch.identity: launch for launch in channel.launches}

    def planned(target: str, start: int, end: int) -> _Place:
        launch = launches[target]
        preset = intern(launch.preset) if launch.HasField("preset") else None
        return intern(launch.model), preset, False, start, end, _met(windows, start, end)

    spans = _spans(channel.steps)
    now_at = max((n for n, span in enumerate(spans) if span.at <= now), default=0)
    _, until, wanted, offered = spans[now_at] if spans else Span(now, 0, "", now)
    live = said.channels.get(channel.channel)
    runs = live.running if live is not None and live.phase == "ready" and live.running_model else ""
    if live is not None and live.running_model and runs:
        since = live.phase_since
        yield intern(live.running_model), live.running_preset, True, since, until, _met(windows, since, until)
    if wanted and wanted != runs:
        yield planned(wanted, offered, until)
    for span in [s for s in spans[now_at + 1 :] if s.target][:MOST_NEXT]:
        yield planned(span.target, span.offered, span.until)


def _windows(steps: Iterable[types_pb2.Step]) -> list[Window]:
    """The reservations of a timetable, by their starts."""
    access = {s.access.reservation_id: s.access for s in steps if s.HasField("access")}
    return sorted(
        Window(
            a.starts_at_ms,
            a.ends_at_ms,
            intern(a.kind),
            intern(a.holder_id),
            tuple(map(intern, sorted(a.participant_ids))),
        )
        for a in access.values()
    )


def _met(windows: Iterable[Window], start: int, end: int) -> tuple[Window, ...]:
    return tuple(w for w in windows if w.end > start and (not end or w.start < end))[:MOST_WINDOWS]


def _spans(steps: Iterable[types_pb2.Step]) -> list[Span]:
    spans: list[Span] = []
    for step in steps:
        if spans and spans[-1].target == step.target:
            continue
        if spans:
            spans[-1] = spans[-1]._replace(until=step.at_ms)
        spans.append(Span(step.at_ms, 0, step.target, max(step.at_ms, step.prepares_for_ms)))
    return spans
