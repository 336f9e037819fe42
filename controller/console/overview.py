"""What the overview shows, as plain data: one read of the store, one look at the nodes' last words.

Targets and reasons come from the same pure function and the same snapshot as the planner's, so that the page says what
is done. Holders' names and notes pass the same rights as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from typing import Any

from markupsafe import Markup
from sqlalchemy.orm import Session

from controller.console import sentences, show
from controller.console import state as state_of
from controller.context import Context
from controller.fleet import snapshot
from controller.fleet.live import LiveChannel, LiveFailure, LiveGpu, LiveNode
from controller.rights import Actor, HolderName, may
from controller.scheduling.targets import decide
from controller.scheduling.types import Decision
from controller.store import channels, reservations, users
from controller.store.tables import Channel, Node, Reservation

AHEAD_MS = 30 * 86_400_000
SKEW_SECONDS = 2.0
MAX_BOOKINGS = 500
OLDEST_MS = 10_000


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking for a page. `holder` is empty for who may not know it; `may_change` = the buttons are there."""

    id: str
    channel: str
    kind: str
    model: str | None
    preset: str | None
    start: int
    end: int
    status: str
    running: bool
    holder: str
    mine: bool
    version: int
    may_change: bool
    may_log: bool
    base_url: str
    loads_at: int | None = None
    invited: bool = False
    series: bool = False
    maintenance: bool = False


@dataclass(slots=True)
class Row:
    """One channel."""

    anchor: str
    name: str
    node: str
    gpus: str
    pill: tuple[str, str, str]
    phase: str
    why: Markup
    model: str | None
    preset: str | None
    is_default: bool
    wanted: bool  # the model shown is not there yet, or failed
    to_model: str | None
    memory: tuple[int, int] | None  # used, total bytes
    use_percent: int | None
    in_flight: int | None
    now: Booking | None
    next: Booking | None
    progress: state_of.Progress | None
    failure: LiveFailure | None
    detail: str
    mine: bool
    open_to_me: bool
    may_log: bool
    may_retry: bool
    may_reload: bool
    gone: bool

    @property
    def groups(self) -> str:
        """Filters that the row belongs to."""
        tests = {
            "ready": self.phase == "ready",
            "open": self.open_to_me,
            "busy": self.phase in ("loading", *state_of.SWITCHING),
            "attention": self.attention,
        }
        return " ".join(name for name, true in tests.items() if true)

    @property
    def attention(self) -> bool:
        return self.failure is not None or self.phase in ("blocked", "retry_wait", "unknown")


@dataclass(slots=True)
class NodeView:
    anchor: str
    name: str
    meta: str
    online: bool
    since: int
    skew: float | None
    cordoned: bool
    refusal: str
    gpu_problem: str = ""
    heat: str = ""
    rows: list[Row] = field(default_factory=list)
    at_risk: list[Booking] = field(default_factory=list)


@dataclass(slots=True)
class Overview:
    """The whole page. `yours` are the viewer's coming bookings, `today` everybody's of the viewer's day. Before `until` it
    says the same, but for what ticks, unless something is changed."""

    now: int
    until: int
    zone: tzinfo
    nodes: list[NodeView]
    yours: list[Booking]
    today: list[Booking]
    by_channel: dict[str, list[Booking]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return [row for node in self.nodes for row in node.rows]

    def count(self, group: str) -> int:
        return sum(group in row.groups.split() for row in self.rows)


def build(ctx: Context, actor: Actor, now: int, zone: tzinfo, only: tuple[str, str] | None = None) -> Overview:
    """The overview as `actor` may see it; `only` = (node, channel): nothing but that one."""
    day = show.moment(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    midnight = [round(d.timestamp() * 1000) for d in (day, day + timedelta(days=1))]
    with ctx.store.read() as db:
        found = channels.find(db, *only) if only else None
        rows = channels.page(db, 5000) if only is None else [found] if found else []
        node_ids = None if only is None else {n.id for _, n in rows} or {""}
        states = {c.id: c for n in snapshot.read_nodes(db, ctx.live, ctx.settings, now, node_ids) for c in n.channels}
        held = reservations.holding_in(db, [c.id for c, _ in rows], now, now + AHEAD_MS)
        today = reservations.page(db, now, MAX_BOOKINGS, start=midnight[0], end=midnight[1])
        names = _names(db, [*held, *today], [c for c, _ in rows])
    shape = _Shaper(ctx, actor, now, names, rows)
    by_channel: dict[str, list[Booking]] = {}
    for booking in held:
        by_channel.setdefault(booking.channel_id, []).append(shape.booking(booking, states))
    views: dict[str, NodeView] = {}
    for channel, node in rows:
        live = ctx.live.node(node.name)
        view = views.setdefault(node.id, _node_view(node, live))
        row = _Builder(ctx, actor, now, zone, names, live).row(
            channel, node, states.get(channel.id), by_channel.get(channel.id, [])
        )
        view.rows.append(row)
        if not live.online and row.next and row.next.start < now + 86_400_000:
            view.at_risk.append(row.next)
    yours = sorted((b for found in by_channel.values() for b in found if b.mine), key=lambda b: b.start)
    shown = [
        r
        for r in today
        if r.status in ("pending", "approved", "finished", "ended_early") and r.channel_id in shape.full_names
    ]
    return Overview(
        now,
        _until(states, held, now),
        zone,
        list(views.values()),
        yours,
        [shape.booking(r, {}) for r in shown],
        {shape.full_names[i]: bookings for i, bookings in by_channel.items()},
    )


def _until(states: dict[str, snapshot.ChannelState], held: list[Reservation], now: int) -> int:
    """The next end of a decision, or start or end of a booking; for the rest (a day that ends) an age that does no harm."""
    instants = [decide(state.input, now).until for state in states.values()]
    instants += [at for row in held for at in (row.starts_at, row.ends_at)]
    return min([now + OLDEST_MS, *(at for at in instants if at is not None and at > now)])


class _Shaper:
    """Makes bookings fit for a viewer."""

    def __init__(
        self, ctx: Context, actor: Actor, now: int, names: dict[str, str], rows: list[tuple[Channel, Node]]
    ) -> None:
        self._ctx, self._actor, self._now, self._names = ctx, actor, now, names
        self.full_names = {c.id: f"{n.name}/{c.name}" for c, n in rows}
        self._base_urls = {c.id: state_of.base_url(c, n, ctx.live.node(n.name)) for c, n in rows}

    def booking(self, row: Reservation, states: dict[str, snapshot.ChannelState]) -> Booking:
        shown = may(self._actor, "reservation.holder", HolderName(row.holder_id, self._ctx.settings.show_holders))
        return Booking(
            row.id,
            self.full_names[row.channel_id],
            row.kind,
            row.model,
            row.preset,
            row.starts_at,
            row.ends_at,
            reservations.status_at(row, self._now),
            reservations.is_running(row, self._now),
            self._names.get(row.holder_id, "") if shown else "",
            row.holder_id == self._actor.id,
            row.version,
            bool(may(self._actor, "reservation.change", row)),
            bool(may(self._actor, "channel.log", row)),
            self._base_urls.get(row.channel_id, ""),
            self._loads_at(row, states.get(row.channel_id)),
            self._actor.id in row.participants,
            row.series_id is not None,
            row.maintenance,
        )

    def _loads_at(self, row: Reservation, state: snapshot.ChannelState | None) -> int | None:
        """When its model begins to load, as the rule of the lead says now."""
        known = next((r for r in state.input.reservations if r.id == row.id), None) if state else None
        if state is None or known is None or known.target is None:
            return None
        rules = state.input.rules
        return known.start - round(max(known.target.load_seconds + rules.buffer, rules.lead) * 1000)


class _Builder:
    """Makes one channel's row."""

    def __init__(
        self, ctx: Context, actor: Actor, now: int, zone: tzinfo, names: dict[str, str], live: LiveNode
    ) -> None:
        self._ctx, self._actor, self._now, self._zone, self._names, self._live = ctx, actor, now, zone, names, live

    def row(self, channel: Channel, node: Node, state: snapshot.ChannelState | None, bookings: list[Booking]) -> Row:
        said = LiveChannel("gone") if channel.gone_at is not None else self._ctx.live.channel(node.name, channel.name)
        decision = decide(state.input, self._now) if state else Decision(None, "idle")
        running = next((b for b in bookings if b.running), None)
        after = next((b for b in bookings if not b.running and b.start > self._now), None)
        seen = self._live.channels.get(channel.name) or said  # what an offline node last said
        model, preset, wanted = state_of.shown_model(said if said.phase != "unknown" else seen, decision)
        holder_runs = running is not None and running.mine
        exclusive = running is not None and running.kind == "exclusive"
        return Row(
            anchor=show.anchor(node.name, channel.name),
            name=channel.name,
            node=node.name,
            gpus=state_of.gpu_label(channel, self._live.gpus),
            pill=state_of.pill(said, exclusive),
            phase=said.phase,
            why=self._why(decision, said, seen, channel),
            model=model,
            preset=preset,
            is_default=model is not None and (model, preset) == (channel.default_model, channel.default_preset),
            wanted=wanted,
            to_model=decision.target.model
            if said.phase in state_of.SWITCHING and decision.target and decision.target.identity != said.running
            else None,
            memory=state_of.memory(channel, self._live.gpus),
            use_percent=state_of.use(channel, self._live.gpus),
            in_flight=said.in_flight if said.phase in ("ready", "draining") else None,
            now=running,
            next=after,
            progress=state_of.progress(said, decision, state, self._ctx),
            failure=said.failure,
            detail=said.detail,
            mine=holder_runs,
            open_to_me=said.phase == "ready" and (running is None or holder_runs) and not exclusive,
            may_log=running is None or running.may_log,
            may_retry=said.failure is not None
            and bool(may(self._actor, "channel.retry", _Held(self._actor.id) if holder_runs else None)),
            may_reload=bool(may(self._actor, "channel.reload", _Held(self._actor.id) if holder_runs else None)),
            gone=channel.gone_at is not None,
        )

    def _why(self, decision: Decision, said: LiveChannel, seen: LiveChannel, channel: Channel) -> Markup:
        booking = decision.reservation
        shown = booking is not None and bool(
            may(self._actor, "reservation.holder", HolderName(booking.holder_id, self._ctx.settings.show_holders))
        )
        viewer = sentences.Viewer(self._actor.id, shown, lambda at: show.time_tag(at, self._now, self._zone))
        if said.phase == "gone":
            return sentences.gone()
        if said.phase == "unknown":
            return sentences.last_seen(seen, self._live.since, viewer.clock)
        if said.fallback and decision.target is not None:
            return sentences.fallback(booking, decision.target.model, viewer)
        by = (
            self._names.get(channel.override_by or "")
            if self._ctx.settings.show_holders != "admins" or self._actor.role == "admin"
            else None
        )
        near = decision.until is not None and decision.until < self._now + 86_400_000
        if decision.why == "default" and not near:
            decision = Decision(decision.target, "default")
        return sentences.why(
            decision,
            viewer,
            running_model=said.running_model or "",
            override_by=by,
            override_until=channel.override_until,
            waits=said.phase != "ready",
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """The running booking, as the rights look at it."""

    holder_id: str
    participants: tuple[Any, ...] = ()


def _names(db: Session, rows: list[Reservation], found: list[Channel]) -> dict[str, str]:
    return users.names(db, [*(r.holder_id for r in rows), *(c.override_by for c in found)])


def _node_view(node: Node, live: LiveNode) -> NodeView:
    skew = live.clock_skew_seconds
    return NodeView(
        show.anchor(node.name),
        node.name,
        state_of.gpu_kinds(live.gpus),
        live.online,
        live.since or node.last_seen_at or node.created_at,
        skew if skew is not None and abs(skew) >= SKEW_SECONDS else None,
        node.cordoned,
        live.refusal,
        live.gpu_problem if live.online else "",
        _heat(live.gpus) if live.online else "",
    )


def _heat(gpus: tuple[LiveGpu, ...]) -> str:
    """The hottest card and what all of them draw, as far as they say."""
    degrees = [g.temperature_c for g in gpus if g.temperature_c is not None]
    watts = [g.power_watts for g in gpus if g.power_watts is not None]
    return ", ".join((*([f"{max(degrees)} °C"] if degrees else []), *([f"{sum(watts)} W"] if watts else [])))
