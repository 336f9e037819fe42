"""What the channel page shows, as plain data: now, the past as a strip, the next day with reasons, what may be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from markupsafe import Markup
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller import shapes
from controller.channel_view import channel_states, see
from controller.console import sentences, show, strip
from controller.console import state as state_of
from controller.context import Context
from controller.errors import NotFound
from controller.fleet.live import LiveChannel, LiveGpu
from controller.fleet.snapshot import ChannelState
from controller.rights import Actor, HolderName, may
from controller.said import say
from controller.scheduling.plan import HOUR, timetable
from controller.scheduling.types import Decision, PlanStep
from controller.store import channel_states as history
from controller.store import channels, presets, reservations, users
from controller.store.tables import Channel, Node, Reservation, Usage

RANGES = {"6h": 6, "24h": 24, "7d": 168}
BUCKETS = 72


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the plan. `who` is a list of names, or a word of `_who` in the template."""

    at: int
    target: Any
    is_default: bool
    why: Markup
    who: str
    names: tuple[str, ...] = ()
    fallback: Any = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A booking in the strip."""

    x: float
    width: float
    label: str
    mine: bool


@dataclass(frozen=True, slots=True)
class Past:
    """The strip of [start, end)."""

    start: int
    end: int
    hours: str
    pieces: list[strip.Piece]
    totals: dict[str, float]
    lanes: list[Lane]
    requests: int
    line: tuple[str, str]
    everybody: bool
    ticks: list[tuple[float, str]]  # per cent, label


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
        past = _past(db, ctx, actor, channel, node, now, zone, hours)
        names = users.names(db, [*_people(running), channel.override_by])
        failed = ctx.live.channel(node.name, channel.name).failure
        preset = presets.find(db, failed.model, failed.preset) if failed and failed.preset else None
        failure_preset = preset.id if preset else None
    said = LiveChannel("gone") if channel.gone_at is not None else ctx.live.channel(node.name, channel.name)
    live = ctx.live.node(node.name)
    decision = seen.decisions.get(channel.id) or Decision(None, "idle")
    reader = _Reader(ctx, actor, now, zone, names, said, channel)
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
        steps=reader.plan(state, running, decision) if state is not None else [],
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


class _Reader:
    """Makes sentences for one viewer."""

    def __init__(
        self,
        ctx: Context,
        actor: Actor,
        now: int,
        zone: tzinfo,
        names: dict[str, str],
        said: LiveChannel,
        channel: Channel,
    ) -> None:
        self._ctx, self._actor, self._now, self._zone = ctx, actor, now, zone
        self._names, self._said, self._channel = names, said, channel

    def now(self, decision: Decision, seen: LiveChannel, since: int) -> Markup:
        viewer = self._viewer(decision.reservation)
        if self._said.phase == "gone":
            return sentences.gone()
        if self._said.phase == "unknown":
            return sentences.last_seen(seen, since, viewer.clock)
        if self._said.fallback and decision.target is not None:
            return sentences.fallback(decision.reservation, decision.target.model, viewer)
        return self._why(decision, waits=self._said.phase != "ready")

    def plan(self, state: ChannelState, running: Reservation | None, decision: Decision) -> list[Step]:
        steps = [s for s in timetable(state.input, self._now) if s.at <= self._now + 24 * HOUR]
        return [self._step(step, running if index == 0 else None) for index, step in enumerate(steps)]

    def _step(self, step: PlanStep, running: Reservation | None) -> Step:
        target = step.target
        default = (self._channel.default_model, self._channel.default_preset)
        who, names = self._who(step, running)
        return Step(
            step.at,
            target,
            target is not None and (target.model, target.preset) == default,
            self._why(Decision(target, step.why, step.fallback, step.reservation), waits=False),
            who,
            names,
            step.fallback,
        )

    def _who(self, step: PlanStep, running: Reservation | None) -> tuple[str, tuple[str, ...]]:
        """Who may call in a step, as far as the viewer may know."""
        if step.running is None:
            if step.target is None:
                return "nobody", ()
            return ("once_ready" if step.why in ("preload", "short_gap") else "everybody"), ()
        if step.running.kind == "exclusive":
            return "nobody", ()
        if step.running.holder_id == self._actor.id:
            return "you", ()
        if not self._viewer(step.running).names_shown or not step.running.holder_name:
            return "holder", ()
        names = [step.running.holder_name]
        if running is not None and may(self._actor, "reservation.details", running):
            names += [self._names[p] for p in running.participants if p in self._names]
        return "names", tuple(names)

    def _why(self, decision: Decision, waits: bool) -> Markup:
        by = self._names.get(self._channel.override_by or "") if self._override_named() else None
        near = decision.until is not None and decision.until < self._now + 86_400_000
        if decision.why == "default" and not near:
            decision = Decision(decision.target, "default")
        return sentences.why(
            decision,
            self._viewer(decision.reservation),
            running_model=self._said.running_model or "",
            override_by=by,
            override_until=self._channel.override_until,
            waits=waits,
        )

    def _override_named(self) -> bool:
        return self._ctx.settings.show_holders != "admins" or self._actor.role == "admin"

    def _viewer(self, booking: Any) -> sentences.Viewer:
        shown = booking is not None and bool(
            may(self._actor, "reservation.holder", HolderName(booking.holder_id, self._ctx.settings.show_holders))
        )
        return sentences.Viewer(self._actor.id, shown, lambda at: show.time_tag(at, self._now, self._zone))


def _past(
    db: Session, ctx: Context, actor: Actor, channel: Channel, node: Node, now: int, zone: tzinfo, hours: str
) -> Past:
    grain = RANGES[hours] * HOUR // 720  # two units: a strip that crept on with every look would never be "unchanged"
    end = (now // grain + 1) * grain
    start = end - RANGES[hours] * HOUR
    booked = [
        r
        for r in reservations.page(db, now, 500, start=start, end=end, channel_id=channel.id)
        if r.status in ("approved", "finished", "ended_early")
    ]
    exclusive = {r.id for r in booked if r.kind == "exclusive"}
    changes = [
        strip.Change(
            r.at, r.phase, r.model, r.preset, r.fallback, r.phase == "off" and _within(r, booked, exclusive), r.reason
        )
        for r in history.between(db, [channel.id], start, end).get(channel.id, [])
    ]
    names = users.names(db, shapes.people_of(booked))
    everybody = actor.role == "admin"
    counts = _requests(db, node.id, channel.name, start, end, None if everybody else actor.id)
    found = strip.pieces(changes, start, end)
    return Past(
        start,
        end,
        hours,
        found,
        strip.totals(found),
        [lane for r in booked if (lane := _lane(ctx, actor, r, names, start, end))],
        sum(counts),
        strip.line(counts),
        everybody,
        _ticks(start, end, zone),
    )


def _ticks(start: int, end: int, zone: tzinfo) -> list[tuple[float, str]]:
    """The axis: the clock, at midnight the day."""
    offset = show.moment(end, zone).utcoffset()
    found = strip.ticks(start, end, round(offset.total_seconds() * 1000) if offset else 0)
    labels = []
    for at in found[:-1]:
        local = show.moment(at, zone)
        text = show.day_name(local) if local.hour == local.minute == 0 else local.strftime("%H:%M")
        labels.append((round(100 * (at - start) / (end - start), 2), text))
    return labels


def _within(row: Any, booked: list[Reservation], exclusive: set[str]) -> bool:
    return any(r.id in exclusive and r.starts_at <= row.at < (r.ended_at or r.ends_at) for r in booked)


def _lane(ctx: Context, actor: Actor, row: Reservation, names: dict[str, str], start: int, end: int) -> Lane | None:
    box = strip.window(start, end, row.starts_at, row.ended_at or row.ends_at)
    if box is None:
        return None
    shown = shapes.holder(row, names, actor, ctx.settings.show_holders)["holder"] or ""
    return Lane(*box, shown, row.holder_id == actor.id)


def _requests(db: Session, node_id: str, channel: str, start: int, end: int, user_id: str | None) -> list[int]:
    """Requests in each of BUCKETS equal stretches."""
    width = max(1, (end - start) // BUCKETS)
    bucket = ((Usage.at - start) // width).label("bucket")
    query = (
        select(bucket, func.count())
        .where(Usage.node_id == node_id, Usage.channel == channel, Usage.at >= start, Usage.at < end)
        .group_by(bucket)
    )
    if user_id is not None:
        query = query.where(Usage.user_id == user_id)
    counts = [0] * BUCKETS
    for place, count in db.execute(query):
        counts[min(BUCKETS - 1, int(place))] += count
    return counts


def _people(row: Reservation | None) -> list[str]:
    return [row.holder_id, *row.participants] if row is not None else []
