"""What nodes report, written into the store: one short transaction a report, repeated reports change nothing.

Called in worker threads (`asyncio.to_thread`), never on the event loop. Every write that can change a target touches
the node's channels, so that the planner looks at them at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.fleet import reports
from controller.notify import inbox
from controller.store import channel_states
from controller.store import usage as usage_store
from controller.store.channel_states import AWAY, GONE, Doing
from controller.store.session import Store, Write
from controller.store.tables import Channel, Load, Node, NodeModel, Usage
from protos import fleet_pb2

# What a node says of a model, by the same name in the protocol and in the table.
MODEL = (
    *("path", "size_bytes", "format", "incomplete", "detail"),
    *("architecture", "context_length", "quantisation", "parameters", "projector", "rotating_disk"),
)


class NodeRefused(Exception):
    """This node may not connect; the message is for its log."""


@dataclass(frozen=True, slots=True)
class Event:
    """What people are told once; `subject` is "node/channel"."""

    id: str
    kind: str
    node_id: str
    channel_id: str | None
    subject: str
    text: str
    at: int
    reservation_id: str
    category: str
    reason: str
    model: str = ""
    preset: str | None = None
    detail: str = ""  # the engine's own first error line


class Records:
    """One a process. `clock` gives ms."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store, self._clock = store, clock

    def check(self, name: str, enrolment: str, ends_at: int | None = None) -> str:
        """The node's id. Raises NodeRefused where it is unknown, removed, disabled, or has been enrolled anew since, or
        where its certificate's end (ms) has passed."""
        if ends_at is not None and ends_at <= self._clock():
            raise NodeRefused("the client certificate has run out")
        with self._store.read() as session:
            return known(session, name, enrolment).id

    def hello(
        self, name: str, enrolment: str, hello: fleet_pb2.Hello, certificate: dict[str, Any] | None = None
    ) -> str:
        """Takes what a node declares of itself; channels it no longer declares are gone. Returns the node's id.

        `certificate`: what the stream's is, {issuer, ends_at}."""
        with self._store.write() as session:
            node = known(session, name, enrolment)
            now = self._clock()
            node.version = hello.version
            node.last_seen_at = now
            settings = reports.own_settings(hello.own_settings)
            changed, node.own_settings = node.own_settings != settings, settings
            node.gateway_urls = list(hello.gateway_urls)
            node.certificate = {**(certificate or {}), "trusts": sorted(hello.trusts)}
            rows = {c.name: c for c in session.scalars(select(Channel).where(Channel.node_id == node.id))}
            there = list(rows.values())
            for said in hello.channels:
                row = rows.pop(said.name, None)
                if row is None:
                    row = Channel(node_id=node.id, name=said.name, created_at=now)
                    session.add(row)
                row.gone_at = None
                row.gpu_uuids = list(said.gpu_uuids)
                row.gpu_memory_bytes = said.gpu_memory_bytes
                row.engines = list(said.engines)
            # where it declares what it did before there is nothing to plan anew: a fleet that comes back is looked at once
            changed |= len(hello.channels) + len(rows) > len(there) or any(session.is_modified(row) for row in there)
            session.flush()
            for row in rows.values():
                if row.gone_at is None:
                    changed = True
                    row.gone_at = now
                    channel_states.record(session, {row.id: Doing(GONE)}, now)
                    why = "This channel is no longer declared by its node."
                    inbox.place_lost(session, row, f"{name}/{row.name}", why, now)
            session.flush()
            if changed:
                _touch_node(session, node.id)
            return node.id

    def left(self, node_id: str) -> None:
        """The node's stream has ended: what its channels do is not known any more."""
        with self._store.write() as session:
            now = self._clock()
            if node := session.get(Node, node_id):
                node.last_seen_at = now
            _lost(session, [node_id], now)

    def silent(self, connected: set[str]) -> None:
        """What the channels of other nodes than these (ids) do is not known: said once, some time after a start."""
        with self._store.read() as session:
            away = [i for i in session.scalars(select(Node.id)) if i not in connected]
            told = channel_states.last(session, list(_declared(session, away)))
            if all(row.phase in (AWAY, GONE) for row in told.values()):
                return
        with self._store.write() as session:
            _lost(session, away, self._clock())

    def states(self, node_id: str, said: dict[str, Doing]) -> None:
        """What channels (by name) do now; nothing is written where that is known."""
        with self._store.read() as session:
            ids = _channel_ids(session, node_id)
            by_id = {ids[name]: doing for name, doing in said.items() if name in ids}
            known = channel_states.last(session, list(by_id))
        news = {i: doing for i, doing in by_id.items() if not doing.same(known.get(i))}
        if news:
            with self._store.write() as session:
                channel_states.record(session, news, self._clock())

    def gpus(self, node_id: str, gpus: list[dict[str, Any]]) -> None:
        """The cards of a node: what lasts of them, not how full they are."""
        with self._store.write() as session:
            if (node := session.get(Node, node_id)) and node.gpus != gpus:
                node.gpus = gpus

    def loads(self, node_id: str, results: list[fleet_pb2.LoadResult]) -> None:
        """Loads as the node measured them; the estimates of every channel of the node may change with them."""
        with self._store.write() as session:
            ids = {_row_id(node_id, r.id): r for r in results}
            known = _existing(session, Load, list(ids))
            channels = _channel_ids(session, node_id)
            for row_id, result in ids.items():
                if row_id in known:
                    continue
                session.add(
                    Load(
                        id=row_id,
                        node_id=node_id,
                        channel_id=channels.get(result.channel),
                        model=result.model,
                        preset=result.preset if result.HasField("preset") else None,
                        identity=result.identity,
                        ok=result.ok,
                        seconds=result.seconds,
                        at=result.at_ms,
                        gpu_memory_bytes=result.gpu_memory_bytes or None,
                    )
                )
            session.touch(*channels.values())

    def usage(self, node_id: str, rows: list[fleet_pb2.UsageRow]) -> None:
        """Requests as the gateway counted them."""
        with self._store.write() as session:
            known, summed = _existing(session, Usage, [r.id for r in rows]), usage_store.summed_until(session)
            for row in rows:
                if row.id in known:
                    continue
                known.add(row.id)
                served = Usage(
                    id=row.id,
                    node_id=node_id,
                    channel=row.channel,
                    model=row.model,
                    key_id=row.key_id,
                    user_id=row.user_id,
                    at=row.at_ms,
                    duration=row.duration_seconds,
                    first_byte=row.first_byte_seconds,
                    status=row.status,
                    outcome=row.outcome,
                    bytes_in=row.bytes_in,
                    bytes_out=row.bytes_out,
                    prompt_tokens=row.prompt_tokens if row.HasField("prompt_tokens") else None,
                    completion_tokens=row.completion_tokens if row.HasField("completion_tokens") else None,
                )
                session.add(served)
                usage_store.count_late(session, served, summed)

    def inventory(self, node_id: str, said: fleet_pb2.Inventory) -> bool:
        """The models on a node's disks, whole; True when something has changed."""
        with self._store.read() as session:
            have = {m.name: _model(m) for m in session.scalars(select(NodeModel).where(NodeModel.node_id == node_id))}
        now = self._clock()
        fresh = {m.name: (*(getattr(m, f) for f in MODEL), list(m.channels), False) for m in said.models}
        if fresh == {n: m for n, m in have.items() if not m[-1]}:
            return False
        with self._store.write() as session:
            rows = {m.name: m for m in session.scalars(select(NodeModel).where(NodeModel.node_id == node_id))}
            for m in said.models:
                row = rows.pop(m.name, None)
                if row is None:
                    row = NodeModel(node_id=node_id, name=m.name)
                    session.add(row)
                for field in MODEL:
                    setattr(row, field, getattr(m, field))
                row.channels = list(m.channels)
                row.seen_at, row.gone_at = now, None
            for row in rows.values():
                row.gone_at = row.gone_at or now
            session.flush()
            _touch_node(session, node_id)
        return True

    def event(self, node_id: str, name: str, event: fleet_pb2.Event, tell: Callable[[Write, Event], None]) -> None:
        """Has an event told (`tell` makes the notices, in the same transaction)."""
        with self._store.write() as session:
            channel = session.scalars(
                select(Channel).where(Channel.node_id == node_id, Channel.name == event.channel)
            ).one_or_none()
            tell(
                session,
                Event(
                    id=_row_id(node_id, event.id),
                    kind=event.kind,
                    node_id=node_id,
                    channel_id=channel.id if channel else None,
                    subject=f"{name}/{event.channel}",
                    text=event.text or event.failure.reason,
                    at=event.at_ms,
                    reservation_id=event.reservation_id,
                    category=event.failure.category,
                    reason=event.failure.reason,
                    model=event.failure.model,
                    preset=event.failure.preset if event.failure.HasField("preset") else None,
                    detail=event.failure.detail,
                ),
            )

    def removed(self, names: dict[str, str]) -> set[str]:
        """Those of {node: enrolment} that may not stay connected: removed, disabled, or enrolled anew."""
        with self._store.read() as session:
            rows = session.execute(
                select(Node.name, Node.certificate_serial).where(
                    Node.name.in_(names), Node.removed_at.is_(None), Node.disabled_at.is_(None)
                )
            ).all()
        good = {name for name, serial in rows if serial == names[name]}
        return set(names) - good


def known(session: Session, name: str, enrolment: str) -> Node:
    """The node of that certificate. Raises NodeRefused where it may not connect."""
    node = session.scalars(select(Node).where(Node.name == name)).one_or_none()
    if node is None:
        raise NodeRefused(f"node {name!r} is not known here; enrol it again with `slotserve node add {name}`")
    if node.removed_at is not None:
        raise NodeRefused(f"node {name!r} has been removed; enrol it again with `slotserve node add {name}`")
    if node.disabled_at is not None:
        raise NodeRefused(f"node {name!r} is disabled; `slotserve node enable {name}` lets it in again")
    if node.certificate_serial != enrolment:
        raise NodeRefused(f"node {name!r} has been enrolled anew since; this certificate no longer counts")
    return node


def _channel_ids(session: Session, node_id: str) -> dict[str, str]:
    rows = session.execute(select(Channel.name, Channel.id).where(Channel.node_id == node_id))
    return {row.name: row.id for row in rows}


def _declared(session: Session, node_ids: list[str]) -> list[str]:
    return list(session.scalars(select(Channel.id).where(Channel.node_id.in_(node_ids), Channel.gone_at.is_(None))))


def _lost(session: Session, node_ids: list[str], now: int) -> None:
    """Only of channels that had said something."""
    told = channel_states.last(session, _declared(session, node_ids))
    channel_states.record(session, {i: Doing(AWAY) for i in told}, now)


def _touch_node(session: Write, node_id: str) -> None:
    session.touch(*_channel_ids(session, node_id).values())


def _existing(session: Session, table: Any, ids: list[str]) -> set[str]:
    return set(session.scalars(select(table.id).where(table.id.in_(ids))))


def _row_id(node_id: str, said: str) -> str:
    """An id that a node has given, as it is kept: of one length, and never that of another node."""
    return hashlib.sha256(f"{node_id} {said}".encode()).hexdigest()[:40]


def _model(row: NodeModel) -> tuple[Any, ...]:
    return (*(getattr(row, f) for f in MODEL), list(row.channels), row.gone_at is not None)
