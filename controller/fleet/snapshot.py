"""What the planner is told of some nodes: out of the store in one short session, out of the nodes' last words in memory.

The number of statements does not depend on the number of nodes, channels or bookings. Everybody who wants to know what
a channel should run (console, REST) reads it here as well, so that they see what the planner sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, and_, case, func, or_, select
from sqlalchemy.orm import Session

from controller.fleet.live import Live, LiveChannel
from controller.scheduling.types import ChannelInput, Millis, Override, Reservation, Rules, Target
from controller.settings import Settings
from controller.store import tables
from controller.store.launches import Catalogue, Launch, disk_read_mbps, read_catalogue
from controller.store.tables import RAN, Channel, Node, User, holding


@dataclass(slots=True)
class ChannelState:
    """A channel as the planner needs it. `launches` has every target of `input` by identity.

    `versions`, `committed` and `pins` are for the guarded writes: the version each approved booking was read at, the ids
    marked as chosen in the store, and what a running booking is to be pinned to (it has no pin, or a failed target's
    preset was edited).
    """

    id: str
    name: str
    input: ChannelInput
    launches: dict[str, Launch]
    step_key: str | None
    step_since: Millis | None
    current_identity: str | None
    versions: dict[str, int] = field(default_factory=dict)
    committed: frozenset[str] = frozenset()
    pins: dict[str, Launch] = field(default_factory=dict)
    limits: tuple[int, int] = (0, 0)  # requests at once: of all together, with one key; 0: no limit


@dataclass(slots=True)
class NodeState:
    """A node that has not been removed, with its declared channels by name.

    `over` are pending and approved bookings of its channels (also of those that are gone) whose window has passed, and
    `next_end` is when the next one's will."""

    id: str
    name: str
    own_settings: Mapping[str, Any]
    generation: int
    plan_sha256: str | None
    channels: list[ChannelState] = field(default_factory=list)
    over: list[Any] = field(default_factory=list)
    next_end: Millis | None = None


def read_nodes(
    session: Session, live: Live, settings: Settings, now: Millis, node_ids: Collection[str] | None = None
) -> list[NodeState]:
    """The nodes with these ids (None: all), by name; removed ones and channels that are gone are left out.

    Eight statements at most."""
    nodes: dict[str, NodeState] = {}
    query = select(Node.id, Node.name, Node.own_settings, Node.generation, Node.plan_sha256).where(
        Node.removed_at.is_(None)
    )
    for n in session.execute((query if node_ids is None else query.where(Node.id.in_(node_ids))).order_by(Node.name)):
        nodes[n.id] = NodeState(n.id, n.name, n.own_settings or {}, n.generation, n.plan_sha256)
    mine = Channel.node_id.in_(list(nodes))
    channels = session.execute(select(*Channel.__table__.c).where(mine).order_by(Channel.name)).all()
    bookings = _bookings(session, mine)
    catalogue = read_catalogue(session, list(nodes), _models(channels, bookings))
    begun = _last_begun(session, mine, now) if any(c.override_set_at is not None for c in channels) else {}
    for c in channels:
        node = nodes[c.node_id]
        _windows(node, bookings.get(c.id, ()), now)
        if c.gone_at is not None:
            continue
        said = live.channel(node.name, c.name)
        reader = _Reader(c, node, said, settings, catalogue, now)
        node.channels.append(reader.state(bookings.get(c.id, ()), begun.get(c.id)))
    return list(nodes.values())


def nodes_of(session: Session, channel_ids: Collection[str]) -> set[str]:
    """The nodes that some channels belong to."""
    return set(session.scalars(select(Channel.node_id).where(Channel.id.in_(channel_ids)).distinct()))


class _Reader:
    """Turns one channel's rows into its state."""

    def __init__(
        self,
        row: Row[Any],
        node: NodeState,
        said: LiveChannel,
        settings: Settings,
        catalogue: Catalogue,
        now: Millis,
    ) -> None:
        self._row, self._node, self._said, self._settings, self._now = row, node, said, settings, now
        self._catalogue = catalogue
        self._speed = disk_read_mbps(node.own_settings, settings.disk_read_mbps)
        self._launches: dict[str, Launch] = {}

    def state(self, bookings: Iterable[Row[Any]], last_begun: Millis | None) -> ChannelState:
        row, said = self._row, self._said
        pins: dict[str, Launch] = {}
        versions: dict[str, int] = {}
        reservations, committed = [], set()
        for booking in bookings:
            if booking.status != "approved" or booking.ends_at <= self._now:
                continue
            reservation = self._reservation(booking, pins)
            if reservation is None:
                continue
            reservations.append(reservation)
            versions[booking.id] = booking.version
            if booking.committed:
                committed.add(booking.id)
        following = next((r.id for r in reservations if r.start > self._now), None)
        known = {said.running, said.switching_to} - {""} if said.phase != "unknown" else set()
        settings, own = self._settings, self._node.own_settings
        lead, stop = row.preload_lead_seconds, own.get("stop_timeout_seconds")
        channel = ChannelInput(
            reservations=tuple(reservations),
            default=self._target(row.default_model, row.default_preset),
            override=self._override(),
            last_begun=last_begun,
            committed=following if following in committed else None,
            current=self._current(),
            present=frozenset(known),
            rules=Rules(
                buffer=settings.switch_buffer_seconds,
                lead=settings.min_preload_lead_seconds if lead is None else lead,
                stop_timeout=settings.stop_timeout_seconds if stop is None else stop,
            ),
        )
        return ChannelState(
            row.id,
            row.name,
            channel,
            self._launches,
            row.step_key,
            row.step_since,
            (row.current_target or {}).get("identity"),
            versions,
            frozenset(committed),
            pins,
            _limits(row.policy or {}),
        )

    def _reservation(self, booking: Row[Any], pins: dict[str, Launch]) -> Reservation | None:
        start = effective_start(booking.starts_at, booking.approved_at)
        if start >= booking.ends_at:
            return None
        target = None
        if booking.kind != "exclusive":
            launch = self._launch(booking.model, booking.preset)
            if start <= self._now:
                launch = self._started_with(booking, launch, pins)
            target = self._known(launch)
        return Reservation(
            booking.id,
            start,
            booking.ends_at,
            booking.kind,
            target,
            booking.holder_id,
            booking.holder_name,
            tuple(booking.participants or ()),
        )

    def _started_with(self, booking: Row[Any], launch: Launch, pins: dict[str, Launch]) -> Launch:
        """A running booking keeps what it was started with; an edit is taken only while that waits after a failure."""
        pinned: Launch | None = booking.pinned
        if pinned is None or (pinned["identity"] != launch["identity"] and self._waits(pinned["identity"])):
            pins[booking.id] = launch
            return launch
        if pinned["identity"] == launch["identity"]:
            return launch
        return {**pinned, "load_seconds": launch["load_seconds"]}

    def _waits(self, identity: str) -> bool:
        failure = self._said.failure
        return failure is not None and failure.identity == identity and self._said.running != identity

    def _override(self) -> Override | None:
        row = self._row
        if row.override_set_at is None:
            return None
        return Override(self._target(row.override_model, row.override_preset), row.override_set_at, row.override_until)

    def _current(self) -> Target | None:
        stored: Launch | None = self._row.current_target
        if stored is None:
            return None
        load = self._catalogue.load_seconds(self._node.id, stored["model"], stored["preset"], self._speed)
        return self._known({**stored, "load_seconds": load})

    def _target(self, model: str | None, preset: str | None) -> Target | None:
        return None if model is None else self._known(self._launch(model, preset))

    def _launch(self, model: str, preset: str | None) -> Launch:
        return self._catalogue.launch(self._node.id, self._row.engines, model, preset, self._speed)

    def _known(self, launch: Launch) -> Target:
        kept = self._launches.setdefault(launch["identity"], launch)
        return Target(kept["model"], kept["preset"], kept["identity"], kept["load_seconds"])


def _limits(policy: Mapping[str, Any]) -> tuple[int, int]:
    return policy.get("max_concurrent") or 0, policy.get("max_concurrent_per_key") or 0


def effective_start(starts_at: Millis, approved_at: Millis | None) -> Millis:
    """When a booking takes effect: at its start, or at once where it was approved after that."""
    return starts_at if approved_at is None else max(starts_at, approved_at)


def _windows(node: NodeState, bookings: Iterable[Any], now: Millis) -> None:
    for booking in bookings:
        if booking.ends_at <= now:
            node.over.append(booking)
        elif node.next_end is None or booking.ends_at < node.next_end:
            node.next_end = booking.ends_at


def _bookings(session: Session, mine: Any) -> dict[str, list[Row[Any]]]:
    """Pending and approved bookings, by channel and start."""
    r = tables.Reservation.__table__.c  # plain columns: no mapped objects are made of them
    rows: Iterable[Any] = session.execute(
        select(
            r.id,
            r.channel_id,
            r.status,
            r.kind,
            r.model,
            r.preset,
            r.starts_at,
            r.ends_at,
            r.approved_at,
            r.holder_id,
            r.participants,
            r.version,
            r.committed,
            r.pinned,
            User.__table__.c.name.label("holder_name"),
        )
        .join(Channel.__table__, Channel.__table__.c.id == r.channel_id)
        .outerjoin(User.__table__, User.__table__.c.id == r.holder_id)
        .where(mine, holding(r.status))
        .order_by(r.channel_id, r.starts_at)
    )
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row.channel_id, []).append(row)
    return found


def _last_begun(session: Session, mine: Any, now: Millis) -> dict[str, Millis]:
    """The latest instant at which a booking took effect after the channel's override was set. One that was cancelled
    before never began; one that was ended early or cancelled afterwards did."""
    r = tables.Reservation
    start = case((r.approved_at > r.starts_at, r.approved_at), else_=r.starts_at)
    rows = session.execute(
        select(r.channel_id, func.max(start))
        .join(Channel, Channel.id == r.channel_id)
        .where(
            mine,
            start > Channel.override_set_at,
            start <= now,
            start < r.ends_at,
            or_(
                r.status.in_(RAN),
                and_(r.status == "cancelled", r.approved_at.is_not(None), r.ended_at > start),
            ),
        )
        .group_by(r.channel_id)
    )
    return {row[0]: row[1] for row in rows}


def _models(channels: Iterable[Row[Any]], bookings: Mapping[str, list[Row[Any]]]) -> list[str]:
    names = {b.model for rows in bookings.values() for b in rows if b.model}
    for c in channels:
        names.update(n for n in (c.default_model, c.override_model, (c.current_target or {}).get("model")) if n)
    return sorted(names)
