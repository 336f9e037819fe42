"""Channels as people see them: what should run and why (the planner's own input and rules), what does run, what comes.

One place for REST and console. The number of statements does not depend on the number of channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from controller import shapes
from controller.booking.view import policy_for, policy_shape
from controller.context import Context
from controller.fleet import addresses
from controller.fleet.live import LiveChannel, LiveFailure
from controller.fleet.snapshot import ChannelState, read_nodes
from controller.rights import Actor
from controller.scheduling.targets import decide, override_ends
from controller.scheduling.types import Decision, Target
from controller.store import reservations, users
from controller.store.launches import disk_read_mbps, read_catalogue
from controller.store.tables import Channel, Node, Reservation
from controller.times import text_of

DAY_MS = 86_400_000
FOR_EVER = 1 << 62
LOADING = ("loading",)
PROGRESS_MS = 500  # how old the progress of a load may be in an answer


@dataclass(frozen=True, slots=True)
class Seen:
    """Some channels as they are at `now`, the same for everybody; `shapes` makes of it what one person may see. Only to be
    read: it is shared. `until` is the first instant at which it says something else though nothing was changed."""

    ctx: Context
    rows: list[tuple[Channel, Node]]
    decisions: dict[str, Decision]
    override_ends: dict[str, int]
    booked: dict[str, list[Reservation]]
    names: dict[str, str]
    edited: set[str]
    until: int

    def shapes(self, actor: Actor, now: int) -> list[dict[str, Any]]:
        """The channels in their order; `now` is before `until`."""
        return [_shape(self, actor, channel, node, now) for channel, node in self.rows]


def shape_all(
    session: Session, ctx: Context, actor: Actor, rows: list[tuple[Channel, Node]], now: int
) -> list[dict[str, Any]]:
    """The channels in the order given."""
    return see(session, ctx, rows, now).shapes(actor, now)


def see(session: Session, ctx: Context, rows: list[tuple[Channel, Node]], now: int) -> Seen:
    """Reads what `shapes` needs."""
    states = channel_states(session, ctx, now, {node.id for _, node in rows})
    booked: dict[str, list[Reservation]] = {}
    for row in reservations.holding_in(session, [c.id for c, _ in rows], now, FOR_EVER):
        booked.setdefault(row.channel_id, []).append(row)
    ids = shapes.people_of([r for several in booked.values() for r in several])
    admitted = {i for c, _ in rows for i in (c.policy or {}).get("allowed_users") or ()}
    names = users.names(session, ids | admitted | {c.override_by for c, _ in rows})
    taken = {r for state in states.values() for r in state.pins}  # the planner takes these edits at its next look
    edited = _edited(session, ctx, rows, booked, now) - taken
    decisions = {i: decide(state.input, now) for i, state in states.items()}
    ends = {i: override_ends(state.input) for i, state in states.items()}
    until = _until(ctx, rows, [*ends.values(), *(d.until for d in decisions.values() if d.until)], booked, now)
    return Seen(ctx, rows, decisions, ends, booked, names, edited, until)


def channel_states(session: Session, ctx: Context, now: int, node_ids: set[str]) -> dict[str, ChannelState]:
    """What the planner is told, by channel id."""
    nodes = read_nodes(session, ctx.live, ctx.settings, now, node_ids)
    return {state.id: state for node in nodes for state in node.channels}


def target_shape(target: Target | None) -> dict[str, Any] | None:
    return None if target is None else {"model": target.model, "preset": target.preset}


def _until(
    ctx: Context,
    rows: list[tuple[Channel, Node]],
    instants: list[int],
    booked: dict[str, list[Reservation]],
    now: int,
) -> int:
    """The first of `instants` (ends of decisions and overrides), of a booking's start and end, of a booking that comes
    within a day; while something loads, its progress counts as well."""
    for r in (r for several in booked.values() for r in several):
        instants += (r.starts_at, r.ends_at, r.starts_at - DAY_MS + 1)
    if any(ctx.live.channel(node.name, channel.name).phase in LOADING for channel, node in rows):
        instants.append(now + PROGRESS_MS)
    return min((at for at in instants if at > now), default=FOR_EVER)


def _shape(seen: Seen, actor: Actor, channel: Channel, node: Node, now: int) -> dict[str, Any]:
    ctx, names, edited = seen.ctx, seen.names, seen.edited
    booked = seen.booked.get(channel.id, [])
    live = ctx.live.channel(node.name, channel.name)
    decision = seen.decisions.get(channel.id) or Decision(None, "idle")
    gone = channel.gone_at is not None
    show = ctx.settings.show_holders

    def brief(row: Reservation) -> dict[str, Any]:
        flags = ["channel_gone"] if gone else []
        return {**shapes.brief(row, names, actor, show, now), "edited_since": row.id in edited, "flags": flags}

    running = next((r for r in booked if reservations.is_running(r, now)), None)
    following = next((r for r in booked if r.starts_at > now), None)
    concerns = decision.reservation.id if decision.reservation else None
    lead = channel.preload_lead_seconds
    said = ctx.live.node(node.name)
    return {
        "id": f"{node.name}/{channel.name}",
        "node": node.name,
        "name": channel.name,
        "target": target_shape(decision.target),
        "why": decision.why,
        "until": text_of(decision.until),
        "phase": "gone" if gone else live.phase,
        "phase_since": text_of(live.phase_since or None),
        "detail": live.detail or None,
        "running": shapes.target(live.running_model, live.running_preset) if live.running else None,
        "reservation": concerns,
        "booking": brief(running) if running else None,
        "next": brief(following) if following else None,
        "upcoming": [brief(r) for r in booked if r.starts_at < now + DAY_MS],
        "failure": failure_shape(live.failure),
        "fallback": live.fallback,
        "load": _load(live, now),
        "in_flight": live.in_flight,
        "drain_deadline": text_of(live.drain_deadline),
        "gateway_url": addresses.gateway(said, node),
        "base_url": addresses.base_url(said, node, channel.name),
        "default_model": channel.default_model,
        "default_preset": channel.default_preset,
        "preload_lead_seconds": ctx.settings.min_preload_lead_seconds if lead is None else lead,
        "policy": policy_shape(policy_for(ctx.settings, channel), names),
        "override": _override(channel, names) if seen.override_ends.get(channel.id, 0) > now else None,
        "gpus": _gpus(ctx, channel, node),
        "gpu_memory_bytes": channel.gpu_memory_bytes,
        "engines": list(channel.engines),
        "online": said.online,
        "cordoned": node.cordoned,
    }


def failure_shape(failure: LiveFailure | None) -> dict[str, Any] | None:
    """{reason, category, count, retry_at, …} of a failure, as the node tells it."""
    if failure is None:
        return None
    return {
        "reason": failure.reason,
        "category": failure.category,
        "count": failure.count,
        "retry_at": text_of(failure.retry_at),
        "since": text_of(failure.since or None),
        "last": text_of(failure.last or None),
        "model": failure.model,
        "preset": failure.preset,
        "detail": failure.detail or None,
    }


def _load(live: LiveChannel, now: int) -> dict[str, Any] | None:
    if live.phase not in LOADING or live.load_started_at is None:
        return None
    return {
        "elapsed_seconds": max(0, now - live.load_started_at) / 1000,
        "estimated_seconds": live.load_estimated_seconds,
    }


def _override(channel: Channel, names: dict[str, str]) -> dict[str, Any] | None:
    if channel.override_set_at is None:
        return None
    return {
        "model": channel.override_model,
        "preset": channel.override_preset,
        "unload": channel.override_model is None,
        "until": text_of(channel.override_until),
        "set_at": text_of(channel.override_set_at),
        "by": names.get(channel.override_by) if channel.override_by else None,
    }


def _gpus(ctx: Context, channel: Channel, node: Node) -> list[dict[str, Any]]:
    known = {g.uuid: g for g in ctx.live.node(node.name).gpus}
    found = []
    for uuid in channel.gpu_uuids:
        gpu = known.get(uuid)
        found.append(
            {
                "uuid": uuid,
                "name": gpu.name if gpu else None,
                "memory_total_bytes": gpu.memory_total_bytes if gpu else None,
                "memory_used_bytes": gpu.memory_used_bytes if gpu else None,
            }
        )
    return found


def _edited(
    session: Session,
    ctx: Context,
    rows: Iterable[tuple[Channel, Node]],
    booked: dict[str, list[Reservation]],
    now: int,
) -> set[str]:
    """Ids of running bookings whose preset was edited since they were started."""
    pinned = [
        (r, channel, node)
        for channel, node in rows
        for r in booked.get(channel.id, [])
        if r.pinned and r.model and reservations.is_running(r, now)
    ]
    if not pinned:
        return set()
    catalogue = read_catalogue(session, {n.id for _, _, n in pinned}, {r.model for r, _, _ in pinned if r.model})
    edited = set()
    for row, channel, node in pinned:
        speed = disk_read_mbps(node.own_settings, ctx.settings.disk_read_mbps)
        launch = catalogue.launch(node.id, channel.engines, row.model or "", row.preset, speed)
        if row.pinned and row.pinned.get("identity") != launch["identity"]:
            edited.add(row.id)
    return edited
