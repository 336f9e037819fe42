"""What the timeline shows, as plain data: a row a channel, each an ordered list of bookings and of what runs between them.

One range, one read: bookings that touch it, and the timetable that the planner makes from the same snapshot. Past its
horizon the default stands for what will run. Names pass the same rights as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from flask_babel import gettext as _
from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.console import show
from controller.console import state as state_of
from controller.context import Context
from controller.fleet import snapshot
from controller.fleet.live import LiveChannel, LiveNode
from controller.rights import Actor, HolderName, may
from controller.scheduling.plan import horizon_end, look_ahead
from controller.scheduling.types import Decision, PlanStep
from controller.store import channels, reservations, users
from controller.store.tables import Channel, Node, NodeModel, Reservation

SHOWN = ("pending", "approved", "finished", "ended_early")
MOST = 5000
SHORT_MS = 60_000
OLDEST_MS = 10_000


@dataclass(frozen=True, slots=True)
class Item:
    """A bar. `kind` is its class in the style sheet (k-…); `id` is empty for what is no booking."""

    kind: str
    start: int
    end: int
    icon: str = ""
    who: str = ""
    model: str | None = None
    preset: str | None = None
    tail: str = ""
    id: str = ""
    version: int = 0
    mine: bool = False
    moves: str = ""  # what its holder may drag: "all", or "end" once it runs
    status: str = ""
    booking_kind: str = ""

    @property
    def band(self) -> bool:
        return not self.id


@dataclass(frozen=True, slots=True)
class Row:
    """A channel. `status` is (text, icon, pill): the second line of its label."""

    anchor: str
    full_name: str
    name: str
    gpus: str
    status: tuple[str, str, str]
    items: tuple[Item, ...]
    bookable: bool

    @property
    def part(self) -> str:
        return f"tl-{self.anchor}"


@dataclass(slots=True)
class NodeRows:
    anchor: str
    name: str
    meta: str
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of the whole is looked at: [start, end), and what is filtered for."""

    start: int
    end: int
    node: str = ""
    model: str = ""
    mine: bool = False


@dataclass(slots=True)
class Timeline:
    wanted: Wanted
    now: int
    until: int
    nodes: list[NodeRows]
    node_names: list[str]
    model_names: list[str]
    channel_count: int


def build(ctx: Context, actor: Actor, now: int, zone: tzinfo, wanted: Wanted) -> Timeline:
    """The timeline as `actor` may see it."""
    with ctx.store.read() as db:
        rows = channels.page(db, MOST)
        node_names = list(dict.fromkeys(n.name for _c, n in rows))
        models = sorted(set(db.scalars(select(NodeModel.name).where(NodeModel.gone_at.is_(None)))))
        rows = list(_filtered(db, rows, wanted))
        node_ids = {n.id for _c, n in rows}
        states = {
            c.id: c for n in snapshot.read_nodes(db, ctx.live, ctx.settings, now, node_ids or {""}) for c in n.channels
        }
        booked = _booked(db, {c.id for c, _n in rows}, now, wanted)
        names = users.names(db, {r.holder_id for found in booked.values() for r in found})
    total, until, nodes = len(rows), now + OLDEST_MS, dict[str, NodeRows]()
    for channel, node in rows:
        found = booked.get(channel.id, [])
        if wanted.mine and not any(r.holder_id == actor.id for r in found):
            continue
        live = ctx.live.node(node.name)
        shaper = _Shaper(ctx, actor, now, names, wanted, channel, live, states.get(channel.id), zone)
        row = shaper.row(node, found)
        if shaper.until is not None and shaper.until > now:
            until = min(until, shaper.until)
        meta = NodeRows(show.anchor(node.name), node.name, state_of.gpu_kinds(live.gpus))
        nodes.setdefault(node.id, meta).rows.append(row)
    return Timeline(wanted, now, until, list(nodes.values()), node_names, models, total)


def _filtered(db: Session, rows: Iterable[tuple[Channel, Node]], wanted: Wanted) -> Iterator[tuple[Channel, Node]]:
    held: set[tuple[str, str]] = set()
    if wanted.model:
        query = select(NodeModel.node_id, NodeModel.channels).where(
            NodeModel.name == wanted.model, NodeModel.gone_at.is_(None)
        )
        held = {(node_id, name) for node_id, names in db.execute(query) for name in names}
    for channel, node in rows:
        if wanted.node and node.name != wanted.node:
            continue
        if wanted.model and (node.id, channel.name) not in held:
            continue
        yield channel, node


def _booked(db: Session, ids: set[str], now: int, wanted: Wanted) -> dict[str, list[Reservation]]:
    found: dict[str, list[Reservation]] = {}
    for row in reservations.page(db, now, MOST, start=wanted.start, end=wanted.end):
        if row.channel_id in ids and row.status in SHOWN and _end(row) > row.starts_at:
            found.setdefault(row.channel_id, []).append(row)
    return found


def _end(row: Reservation) -> int:
    """When it really ends, or ended."""
    return min(row.ends_at, row.ended_at) if row.ended_at is not None else row.ends_at


class _Shaper:
    """Makes one channel's row."""

    def __init__(
        self,
        ctx: Context,
        actor: Actor,
        now: int,
        names: dict[str, str],
        wanted: Wanted,
        channel: Channel,
        live: LiveNode,
        state: snapshot.ChannelState | None,
        zone: tzinfo,
    ) -> None:
        self._ctx, self._actor, self._now, self._names, self._wanted = ctx, actor, now, names, wanted
        self._channel, self._live, self._state, self._zone = channel, live, state, zone
        self._gone = channel.gone_at is not None
        self.until: int | None = None

    def row(self, node: Node, booked: list[Reservation]) -> Row:
        channel = self._channel
        said = LiveChannel("gone") if self._gone else self._ctx.live.channel(node.name, channel.name)
        decision, steps = Decision(None, "idle"), tuple[PlanStep, ...]()
        if self._state is not None:
            decision, steps = look_ahead(self._state.input, self._now)
            self.until = decision.until
        items = [self._booking(row, said) for row in booked]
        bands = self._bands(items, steps, said)
        return Row(
            show.anchor(node.name, channel.name),
            f"{node.name}/{channel.name}",
            channel.name,
            state_of.gpu_label(channel, self._live.gpus),
            self._status(said, decision),
            tuple(sorted([*items, *bands], key=lambda i: i.start)),
            not self._gone and not node.cordoned,
        )

    def _booking(self, row: Reservation, said: LiveChannel) -> Item:
        now, mine = self._now, row.holder_id == self._actor.id
        status = reservations.status_at(row, now)
        running = reservations.is_running(row, now)
        shown = may(self._actor, "reservation.holder", HolderName(row.holder_id, self._ctx.settings.show_holders))
        who = _("You") if mine else (self._names.get(row.holder_id, "") if shown else "") or _("somebody")
        kind, icon = ("k-mine" if mine else "k-other"), ""
        if row.maintenance:
            kind, icon, who = "k-maint", "wrench", _("Maintenance")
        elif status == "pending":
            kind, icon, who = "k-pending", "sand", _("%(who)s · pending", who=who)
        elif running and said.fallback:
            kind, icon, who = "k-fail", "oct", _("%(who)s · fallback", who=who)
        elif running and said.failure is not None and said.phase != "ready":
            kind, icon, who = "k-fail", "oct", _("%(who)s · failed", who=who)
        elif row.kind == "exclusive":
            kind, icon = "k-excl", "lock"
            who = _("%(who)s · exclusive", who=who)
        elif not self._live.online and _end(row) > now:
            icon, who = "tri", _("%(who)s · at risk", who=who)
        holding = status in ("pending", "approved")
        moves = ("end" if row.starts_at <= now else "all") if mine and holding and not row.maintenance else ""
        tail = _("nothing loaded") if row.kind == "exclusive" and not row.maintenance else ""
        if row.maintenance and row.note and may(self._actor, "reservation.details", row):
            tail = row.note[:60]
        return Item(
            kind, row.starts_at, _end(row), icon, who, row.model, row.preset, tail, row.id, row.version, mine, moves,
            "running" if running else status, row.kind,
        )  # fmt: skip

    def _bands(self, items: list[Item], steps: tuple[PlanStep, ...], said: LiveChannel) -> Iterator[Item]:
        """What runs where nothing is booked, from now on."""
        if self._gone:
            return
        edge = max(self._wanted.start, self._now)
        for item in sorted(items, key=lambda i: i.start):
            if item.start > edge:
                yield from self._between(edge, min(item.start, self._wanted.end), steps, said)
            edge = max(edge, item.end)
        if edge < self._wanted.end:
            yield from self._between(edge, self._wanted.end, steps, said)

    def _between(self, start: int, end: int, steps: tuple[PlanStep, ...], said: LiveChannel) -> Iterator[Item]:
        """[start, end) in pieces, neighbours that look the same as one."""
        last: Item | None = None
        for begin, over, step in _pieces(start, end, steps, horizon_end(self._now)):
            item = self._band(begin, over, step, said)
            if last is not None and (last.kind, last.model, last.preset, last.tail) == (
                item.kind, item.model, item.preset, item.tail,
            ):  # fmt: skip
                item = _longer(last, item.end)
            elif last is not None:
                yield last
            last = item
        if last is not None:
            yield last

    def _band(self, start: int, end: int, step: PlanStep | None, said: LiveChannel) -> Item:
        default = (self._channel.default_model, self._channel.default_preset)
        if not self._live.online:
            return Item("k-off" if start <= self._now else "k-unsure", start, end, "cut", model=default[0],
                        preset=default[1], tail=_("no contact") if start <= self._now else "")  # fmt: skip
        why = step.why if step is not None else "default"
        model, preset = (
            (step.target.model, step.target.preset) if step is not None and step.target is not None else (None, None)
        )
        if step is None or why in ("reserved", "exclusive"):  # past the horizon, or what a request in front leaves open
            why, (model, preset) = ("default" if default[0] else "idle"), default
        failed = said.failure is not None and said.phase in ("retry_wait", "blocked") and start <= self._now
        if failed or (said.phase == "blocked" and start <= self._now):
            return Item("k-fail", start, end, "oct", model=model, preset=preset, tail=_("failed"))
        if why == "override":
            tail = _("override") if model else _("override: nothing is loaded")
            return Item("k-hand", start, end, "hand", model=model, preset=preset, tail=tail)
        if why in ("preload", "clearing"):
            tail = _("preloading") if why == "preload" else _("clearing the card")
            return Item("k-pre", start, end, "arc", model=model, preset=preset, tail=tail)
        if model is None:
            return Item("k-none", start, end, tail=_("nothing is loaded"))
        return Item("k-band", start, end, model=model, preset=preset, tail=_("open to all"))

    def _status(self, said: LiveChannel, decision: Decision) -> tuple[str, str, str]:
        """The second line of the label: the word of the phase, and what it is about."""
        exclusive = decision.why == "exclusive"
        word, icon, pill = state_of.pill(said, exclusive)
        text = _(word)
        if said.fallback and said.running_model:
            text = _("Fallback on %(model)s", model=said.running_model)
        elif said.phase == "loading" and said.load_started_at and said.load_estimated_seconds:
            ready = said.load_started_at + round(said.load_estimated_seconds * 1000)
            if ready > self._now:
                text = _("Loading, ready about %(time)s", time=show.clock(ready, self._now, self._zone))
        elif said.phase == "draining":
            text = _("Switching, draining %(count)s", count=said.in_flight)
        elif said.phase == "retry_wait" and said.failure is not None and said.failure.retry_at:
            text = _("Failed, next try %(time)s", time=show.clock(said.failure.retry_at, self._now, self._zone))
        return text, icon, {"idle": "off", "grey": "off", "ink": "off"}.get(pill, pill)


def _pieces(
    start: int, end: int, steps: tuple[PlanStep, ...], horizon: int
) -> Iterator[tuple[int, int, PlanStep | None]]:
    """[start, end) cut at the steps; None = past the horizon."""
    ends = [*(s.at for s in steps[1:]), horizon]
    for step, over in zip(steps, ends, strict=False):
        begin, over = max(start, step.at), min(end, over)
        if begin < over:
            yield begin, over, step
    begin = max(start, horizon if steps else start)
    if begin < end:
        yield begin, end, None


def _longer(item: Item, end: int) -> Item:
    values: dict[str, Any] = {name: getattr(item, name) for name in Item.__slots__}
    return Item(**{**values, "end": end})
