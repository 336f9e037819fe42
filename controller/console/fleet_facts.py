"""Makes the facts of all channels (facts.py): read from the store once a change, shared by everybody who looks.

A channel's record is made anew only when something of it has changed.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from controller.console import show
from controller.console import state as state_of
from controller.console.facts import ChannelFacts, Fleet, Held, NodeFacts
from controller.context import Context
from controller.fleet import addresses, snapshot
from controller.fleet.live import LiveChannel, LiveNode
from controller.scheduling.targets import decide
from controller.scheduling.types import Decision
from controller.store import channels, reservations, users
from controller.store.tables import Channel, Node, Reservation
from protos.shared import clocks

DAY_MS = 86_400_000
AHEAD_MS = 400 * DAY_MS
OLDEST_MS = 60_000
_SERIALS = itertools.count(1)  # one row of numbers a process: what is kept by serial is never another application's


def fleet(ctx: Context, now: int) -> Fleet:
    """The facts as they are."""
    keeper: _Keeper = ctx.once("console.facts", lambda: _Keeper(ctx))
    return keeper.look(now)


@dataclass(slots=True)
class _Read:
    """What the store said. `generation` by node: of the read that its states are from."""

    rows: list[tuple[Channel, Node]]
    states: dict[str, snapshot.ChannelState]
    held: dict[str, list[Reservation]]
    names: dict[str, str]
    until: int
    generation: dict[str, int] = field(default_factory=dict)


class _Keeper:
    """Thread-safe; one look at a time, for the second would only do the first one's work again."""

    def __init__(self, ctx: Context) -> None:
        self._ctx, self._lock, self._serials = ctx, threading.Lock(), _SERIALS
        self._revision, self._live_revision = -1, -1
        self._read: _Read | None = None
        self._fleet: Fleet | None = None
        self._known: dict[str, tuple[Any, ChannelFacts, int]] = {}
        self._bookings = 0
        self._nodes: dict[str, LiveNode] = {}

    def look(self, now: int) -> Fleet:
        revision, live_revision = self._ctx.store.revision(), self._ctx.live.revision
        with self._lock:
            fresh = self._fleet is not None and now < self._fleet.until and self._read is not None
            if fresh and (revision, live_revision) == (self._revision, self._live_revision):
                assert self._fleet is not None
                return self._fleet
            nodes = self._ctx.live.snapshot()
            if self._read is None or revision != self._revision or now >= self._read.until:
                self._read = self._read_all(now)
            else:
                self._read_again(self._read, nodes, now)
            made = self._made(self._read, now, revision)
            self._revision, self._live_revision, self._nodes, self._fleet = revision, live_revision, nodes, made
            return made

    def _read_all(self, now: int) -> _Read:
        ctx = self._ctx
        with ctx.store.read() as db:
            rows = channels.page(db, 5000)
            states = _states(db, ctx, now)
            held: dict[str, list[Reservation]] = {}
            for row in reservations.holding_in(db, [c.id for c, _ in rows], now, now + AHEAD_MS):
                held.setdefault(row.channel_id, []).append(row)
            every = [r for several in held.values() for r in several]
            names = users.names(db, [*(r.holder_id for r in every), *(c.override_by for c, _ in rows)])
        ends = [at for r in every for at in (r.starts_at, r.ends_at) if at > now]
        read = _Read(rows, states, held, names, min([now + OLDEST_MS, *ends]))
        generation = next(self._serials)
        read.generation = {n.name: generation for _, n in rows}
        return read

    def _read_again(self, read: _Read, nodes: dict[str, LiveNode], now: int) -> None:
        """Where a channel's process changed, what it should run is worked out from the store again."""
        changed = {
            n.name: n.id for _, n in read.rows if _essence(nodes.get(n.name)) != _essence(self._nodes.get(n.name))
        }
        if not changed:
            return
        with self._ctx.store.read() as db:
            read.states |= _states(db, self._ctx, now, set(changed.values()))
        generation = next(self._serials)
        read.generation |= dict.fromkeys(changed, generation)

    def _made(self, read: _Read, now: int, revision: int) -> Fleet:
        found: dict[str, list[ChannelFacts]] = {}
        nodes: dict[str, Node] = {}
        until, before = read.until, dict(self._known)
        self._known = {}
        for channel, node in read.rows:
            live = self._ctx.live.node(node.name)
            said = self._ctx.live.channel(node.name, channel.name) if channel.gone_at is None else LiveChannel("gone")
            frame = (read.generation[node.name], said, live.online, live.since, _cards(live), live.gateway_urls)
            had = before.get(channel.id)
            if had is not None and had[0] == frame and now < had[2]:
                facts, due = had[1], had[2]
            else:
                facts, due = self._channel(read, channel, node, live, said, now)
                facts = had[1] if had is not None and had[1] == facts else replace(facts, serial=next(self._serials))
            self._known[channel.id] = (frame, facts, due)
            until = min(until, due)
            nodes[node.id] = node
            found.setdefault(node.id, []).append(facts)
        made = tuple(
            _node(nodes[i], self._ctx.live.node(nodes[i].name), tuple(several)) for i, several in found.items()
        )
        old = self._fleet
        serials = [c.serial for n in made for c in n.channels]
        same = old is not None and old.nodes == made and [c.serial for c in old.channels] == serials
        serial = old.serial if same and old is not None else next(self._serials)
        people: dict[str, list[ChannelFacts]] = {}
        for one in made:
            for c in one.channels:
                for person in c.people:
                    people.setdefault(person, []).append(c)
        return Fleet(serial, until, made, self._bookings, revision, people)

    def _channel(
        self, read: _Read, channel: Channel, node: Node, live: LiveNode, said: LiveChannel, now: int
    ) -> tuple[ChannelFacts, int]:
        """The facts, and until when they hold."""
        state = read.states.get(channel.id)
        decision = decide(state.input, now) if state else Decision(None, "idle")
        url = addresses.base_url(live, node, channel.name) or ""
        full = f"{node.name}/{channel.name}"
        bookings = tuple(
            _held(r, full, url, state, read.names) for r in read.held.get(channel.id, []) if r.ends_at > now
        )
        people = {b.holder_id for b in bookings} | {p for b in bookings for p in b.participants}
        ends = [at for b in bookings for at in (b.start, b.end) if at > now]
        due = min([decision.until or now + OLDEST_MS, now + OLDEST_MS, *ends])
        near = decision.until is not None and decision.until < now + DAY_MS
        if decision.until is not None and not near:
            due = min(due, decision.until - DAY_MS)
        running = next((b.id for b in bookings if b.status == "approved" and b.start <= now), "")
        facts = ChannelFacts(
            channel.id, full, show.anchor(node.name, channel.name), channel.name, node.name, channel.gone_at is not None, node.cordoned,
            state_of.gpu_label(channel, live.gpus), tuple(channel.gpu_uuids), url,
            (channel.default_model, channel.default_preset),
            (channel.override_by, read.names.get(channel.override_by or "", "")), channel.override_until,
            live.online, live.since, said, live.channels.get(channel.name) or said, decision, bookings,
            state_of.progress(said, decision, state, self._ctx), state.input if state else None,
            state.step_since if state else None, frozenset(people),
            (running, sum(b.start > now for b in bookings), near),
        )  # fmt: skip
        return facts, max(due, now + 1)


def _states(db: Session, ctx: Context, now: int, node_ids: set[str] | None = None) -> dict[str, snapshot.ChannelState]:
    return {c.id: c for n in snapshot.read_nodes(db, ctx.live, ctx.settings, now, node_ids) for c in n.channels}


def _held(
    row: Reservation, full_name: str, url: str, state: snapshot.ChannelState | None, names: dict[str, str]
) -> Held:
    return Held(
        row.id, full_name, row.kind, row.model, row.preset, row.starts_at, row.ends_at, row.status, row.holder_id,
        names.get(row.holder_id, ""), tuple(row.participants or ()), row.version, url, _loads_at(row, state),
        row.series_id is not None, row.maintenance,
    )  # fmt: skip


def _loads_at(row: Reservation, state: snapshot.ChannelState | None) -> int | None:
    """When its model begins to load, as the rule of the lead says now."""
    known = next((r for r in state.input.reservations if r.id == row.id), None) if state else None
    if state is None or known is None or known.target is None:
        return None
    rules = state.input.rules
    return known.start - round(max(known.target.load_seconds + rules.buffer, rules.lead) * 1000)


def _node(node: Node, live: LiveNode, several: tuple[ChannelFacts, ...]) -> NodeFacts:
    skew = live.clock_skew_seconds
    return NodeFacts(
        node.id,
        node.name,
        state_of.gpu_kinds(live.gpus),
        live.online,
        live.since or node.last_seen_at or node.created_at,
        round(skew, 1) if skew is not None and clocks.shown(skew) else None,
        node.cordoned,
        node.disabled_at is not None,
        live.refusal,
        live.turned_away,
        live.gpu_problem if live.online else "",
        several,
    )


def _essence(live: LiveNode | None) -> Any:
    """What the decisions of a node's channels depend on."""
    if live is None:
        return None
    return (
        live.online,
        live.heard,
        {
            n: (c.phase, c.running, c.switching_to, c.failure.identity if c.failure else "")
            for n, c in live.channels.items()
        },
    )


def _cards(live: LiveNode) -> tuple[tuple[str, int], ...]:
    return tuple((g.uuid, g.index) for g in live.gpus)
