"""What the channel page shows, as plain data: now, the past as a strip, the next day with reasons, what may be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from markupsafe import Markup

from controller.channel_view import channel_states, see
from controller.console import channel_past, strip
from controller.console import state as state_of
from controller.console.channel_past import Past
from controller.console.channel_plan import Reader, Step
from controller.context import Context
from controller.errors import NotFound
from controller.fleet.live import LiveChannel, LiveGpu
from controller.rights import Actor, may
from controller.said import say
from controller.scheduling.types import Decision
from controller.store import channels, presets, reservations, users
from controller.store.tables import Reservation


@dataclass(frozen=True, slots=True)
class GpuView:
    gpu: LiveGpu
    memory: tuple[str, str]
    use: tuple[str, str]


@dataclass(slots=True)
class View:
    """The page. `shape` is what the REST API answers for the channel."""

    now: int
    until: int
    shape: dict[str, Any]
    said: LiveChannel
    pill: tuple[str, str, str]
    why: Markup
    gpus_label: str
    gpus: list[GpuView]
    progress: state_of.Progress | None
    failure_preset: str | None
    past: Past
    steps: list[Step]
    plan: dict[str, Any]
    may: dict[str, bool]
    participants: list[str] = field(default_factory=list)


def build(ctx: Context, actor: Actor, now: int, zone: tzinfo, node_name: str, name: str, hours: str) -> View:
    """The page as `actor` may see it. Raises NotFound."""
    with ctx.store.read() as db:
        row = channels.find(db, node_name, name)
        if row is None:
            raise NotFound(say("there is no channel %(node)s/%(name)s", node=node_name, name=name))
        channel, node = row
        seen = see(db, ctx, [row], now)
        state = channel_states(db, ctx, now, {node.id}).get(channel.id)
        running = reservations.running(db, channel.id, now)
        past = channel_past.read(db, ctx, actor, channel, node, now, zone, hours)
        names = users.names(db, [*_people(running), channel.override_by])
        failed = ctx.live.channel(node.name, channel.name).failure
        preset = presets.find(db, failed.model, failed.preset) if failed and failed.preset else None
        failure_preset = preset.id if preset else None
    said = LiveChannel("gone") if channel.gone_at is not None else ctx.live.channel(node.name, channel.name)
    live = ctx.live.node(node.name)
    decision = seen.decisions.get(channel.id) or Decision(None, "idle")
    reader = Reader(ctx, actor, now, zone, names, said, channel)
    exclusive = running is not None and running.kind == "exclusive"
    gpu_past = ctx.live.gpu_history
    gpus = sorted((g for g in live.gpus if g.uuid in channel.gpu_uuids), key=lambda g: g.index)
    return View(
        now=now,
        until=min(seen.until, now + 60_000),
        shape=seen.shapes(actor, now)[0],
        said=said,
        pill=state_of.pill(said, exclusive),
        why=reader.now(decision, live.channels.get(channel.name) or said, live.since),
        gpus_label=state_of.gpu_label(channel, live.gpus),
        gpus=[
            GpuView(g, *(strip.line(series(g.uuid), 20, top=100) for series in (gpu_past.memory, gpu_past.use)))
            for g in gpus
        ],
        progress=state_of.progress(said, decision, state, ctx),
        failure_preset=failure_preset,
        past=past,
        steps=reader.plan(state, running) if state is not None else [],
        plan={
            "generation": node.generation,
            "accepted": live.plan_generation == node.generation > 0 and not live.refusal,
            "refusal": live.refusal,
            "online": live.online,
        },
        may={
            "reload": bool(may(actor, "channel.reload", running)),
            "retry": bool(may(actor, "channel.retry", running)),
            "override": bool(may(actor, "channel.override")),
            "configure": bool(may(actor, "channel.configure")),
        },
    )


def _people(row: Reservation | None) -> list[str]:
    return [row.holder_id, *row.participants] if row is not None else []
