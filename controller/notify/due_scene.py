"""What one look at the fleet sees, at one instant: the bookings that matter, the nodes, who is to hear of what.

Everything here only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from sqlalchemy import Select, and_, select
from sqlalchemy.orm import Session

from controller.booking import bare_card, free
from controller.context import Context
from controller.fleet.live import LiveGpuProcess
from controller.notify.tell import Event, for_participants
from controller.store import users
from controller.store.tables import Channel, Node, Reservation

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
CALM_MS = 60_000  # after a start nobody is told of nodes that are not back yet: they come, or will be told of then
LOST_AHEAD_MS = 2 * HOUR  # bookings that start later may well see the node again


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking and where it is; plain rows of what is needed here, only to be read: a round goes over thousands every few
    seconds. `started_with`: the identity of what its run was started with."""

    row: Reservation
    channel: str
    gpu_uuids: list[str]
    started_with: str | None
    node: Node

    @property
    def place(self) -> str:
        return f"{self.node.name}/{self.channel}"

    def facts(self, holder: str | None) -> dict[str, Any]:
        row = self.row
        return {
            "reservation_id": row.id,
            "channel": self.place,
            "node": self.node.name,
            "booking_kind": row.kind,
            "model": row.model,
            "preset": row.preset,
            "starts_at": row.starts_at,
            "ends_at": row.ends_at,
            "holder": holder,
        }


@dataclass(frozen=True, slots=True)
class Due:
    """An event and whom it is for; `shared`: administrators' channels as well; `without`: a booking that may need another
    channel (what is free is looked for only when it is told)."""

    event: Event
    people: tuple[str, ...]
    shared: bool = False
    without: Booked | None = None


class Scene:
    """`since`: when this controller began to look (nodes need time to come back after a start)."""

    def __init__(self, session: Session, ctx: Context, now: int, since: int) -> None:
        self.session, self.ctx, self.now, self.since = session, ctx, now, since
        ahead = max(LOST_AHEAD_MS, int(ctx.settings.notify_starts_soon_minutes * MINUTE))
        self.nodes = cast("list[Node]", session.execute(_nodes()).all())
        self._nodes = {node.id: node for node in self.nodes}
        self.bookings = self.read(
            and_(Reservation.status == "approved", Reservation.ends_at > now, Reservation.starts_at <= now + ahead)
        )
        self.names = users.names(session, {b.row.holder_id for b in self.bookings})
        self._admins: tuple[str, ...] | None = None

    def lost_since(self, node: Node) -> int | None:
        """Since when nothing has been heard of a node, once that is long enough."""
        said = self.ctx.live.node(node.name)
        if said.online or node.last_seen_at is None:
            return None
        since = max(said.since or node.last_seen_at or 0, self.since if not said.since else 0)
        long = self.ctx.settings.notify_node_lost_seconds * 1000
        calm = self.now - self.since < CALM_MS and said.since <= self.since  # one that was here and has left is lost
        if calm or self.now - max(since, self.since) < long:
            return None
        return since

    def others(self, booked: Booked) -> list[dict[str, Any]]:
        """Channels elsewhere that could serve the rest of a booking, at its time."""
        row = booked.row
        start = max(row.starts_at, self.now)
        wish = free.Wish(row.kind, row.model, row.preset, row.ends_at - start, start)
        found = free.ranked(self.session, self.ctx, wish, self.now, each=1)
        there = [
            w for w in found if w.online and not w.channel.startswith(f"{booked.node.name}/") and w.slot.start == start
        ]
        return [{"channel": w.channel, "starts_at": w.slot.start, "ends_at": w.slot.end} for w in there[:3]]

    def for_sharers(
        self, event_id: str, kind: str, booked: Booked, more: dict[str, Any], without: Booked | None = None
    ) -> Iterator[Due]:
        """For its holder, and for those who share it in their words; `more`: facts."""
        row = booked.row
        event = Event(event_id, kind, row.id, self.now, booked.facts(self.names.get(row.holder_id)) | more)
        yield Due(event, (row.holder_id,), without=without)
        if others := tuple(i for i in row.participants if i != row.holder_id):
            yield Due(for_participants(event), others)

    def processes(self, booked: Booked) -> list[LiveGpuProcess]:
        """What runs on a channel's GPUs and is no engine of ours."""
        said = self.ctx.live.node(booked.node.name)
        return bare_card.processes(said, booked.gpu_uuids) if said.online else []

    def administrators(self) -> tuple[str, ...]:
        if self._admins is None:
            self._admins = tuple(users.administrators(self.session))
        return self._admins

    def read(self, which: Any) -> list[Booked]:
        query = _bookings().where(which).order_by(Reservation.starts_at, Reservation.id)
        rows = self.session.execute(query).all()
        return [
            Booked(cast("Reservation", row), row.channel, row.gpu_uuids, row.started_with, self._nodes[row.node_id])
            for row in rows
            if row.node_id in self._nodes
        ]


@cache
def _nodes() -> Select[Any]:
    """Those that are not removed: as much of them as is looked at here."""
    row = Node
    columns = (row.id, row.name, row.last_seen_at, row.cordoned, row.cordon_reason, row.drain_until, row.gateway_urls)
    return select(*columns).where(row.removed_at.is_(None))


@cache
def _bookings() -> Select[Any]:
    """As above, on channels that are there; maintenance is told of elsewhere."""
    row = Reservation
    columns = (
        *(row.id, row.channel_id, row.kind, row.model, row.preset, row.starts_at, row.ends_at, row.status),
        *(row.holder_id, row.participants, row.created_at, row.approved_at, row.problem),
        row.pinned["identity"].as_string().label("started_with"),
    )
    place = (Channel.name.label("channel"), Channel.gpu_uuids, Channel.node_id)
    return (
        select(*columns, *place)
        .join(Channel, Channel.id == row.channel_id)
        .where(Channel.gone_at.is_(None), row.maintenance.is_(False))
    )
