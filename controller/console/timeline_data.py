"""What the timeline shows, as plain data: a row a channel, each an ordered list of bookings and of what runs between them.

Out of the facts that everybody shares (facts.py), one read of the bookings that touch the range, and the timetable that
the planner makes from the same input. Past its horizon the default stands for what will run. Names pass the same rights
as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo

from flask_babel import gettext as _
from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.console import show
from controller.console import state as state_of
from controller.console.facts import ChannelFacts, Fleet, Held
from controller.console.kept import Kept
from controller.context import Context
from controller.fleet.live import LiveChannel
from controller.rights import Actor, HolderName, may
from controller.scheduling.plan import HOUR, horizon_end, look_ahead
from controller.scheduling.types import Decision, PlanStep
from controller.store import reservations, users
from controller.store.tables import RAN, NodeModel, Reservation

SHOWN = ("pending", *RAN)
MOST = 5000
SINCE_MS = 600_000


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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of the whole is looked at: [start, end), and what is filtered for."""

    start: int
    end: int
    node: str = ""
    model: str = ""
    mine: bool = False


@dataclass(frozen=True, slots=True)
class Sought:
    """What a range of time holds, whoever looks: the bookings by channel, and what can be filtered for."""

    serial: tuple[int, int, int]
    booked: dict[str, tuple[Held, ...]]
    models: tuple[str, ...]
    has: frozenset[tuple[str, str]]  # node's id and channel that have the wanted model


def sought(ctx: Context, seen: Fleet, now: int, wanted: Wanted) -> Sought:
    """Read once for everybody who looks at the same range."""
    kept: Kept = ctx.once("console.ranges", lambda: Kept(64))
    found: Sought = kept.get(
        (seen.revision, wanted.start, wanted.end, wanted.model), lambda: _read(ctx, seen, now, wanted)
    )
    return found


def _read(ctx: Context, seen: Fleet, now: int, wanted: Wanted) -> Sought:
    with ctx.store.read() as db:
        rows = [
            r
            for r in reservations.page(db, now, MOST, start=wanted.start, end=wanted.end)
            if r.status in SHOWN and _end(r) > r.starts_at
        ]
        names = users.names(db, {r.holder_id for r in rows})
        models = tuple(sorted(set(db.scalars(select(NodeModel.name).where(NodeModel.gone_at.is_(None))))))
        has = _has(db, wanted.model) if wanted.model else frozenset[tuple[str, str]]()
    booked: dict[str, list[Held]] = {}
    for r in rows:
        booked.setdefault(r.channel_id, []).append(
            Held(
                r.id, "", r.kind, r.model, r.preset, r.starts_at, _end(r), r.status, r.holder_id,
                names.get(r.holder_id, ""), tuple(r.participants or ()), r.version, "", None,
                r.series_id is not None, r.maintenance,
            )
        )  # fmt: skip
    found = {i: tuple(several) for i, several in booked.items()}
    return Sought((seen.revision, wanted.start, wanted.end), found, models, has)


def _has(db: Session, model: str) -> frozenset[tuple[str, str]]:
    query = select(NodeModel.node_id, NodeModel.channels).where(NodeModel.name == model, NodeModel.gone_at.is_(None))
    return frozenset((node_id, name) for node_id, names in db.execute(query) for name in names)


def _end(row: Reservation) -> int:
    """When it really ends, or ended."""
    return min(row.ends_at, row.ended_at) if row.ended_at is not None else row.ends_at


def shown(
    seen: Fleet, found: Sought, actor: Actor, wanted: Wanted
) -> Iterator[tuple[str, ChannelFacts, tuple[Held, ...]]]:
    """(node's id, channel, its bookings) of what the filters leave."""
    for node in seen.nodes:
        if wanted.node and node.name != wanted.node:
            continue
        for c in node.channels:
            booked = found.booked.get(c.id, ())
            if wanted.model and (node.id, c.name) not in found.has:
                continue
            if wanted.mine and not any(b.holder_id == actor.id for b in booked):
                continue
            yield node.id, c, booked


def row(
    ctx: Context, actor: Actor, now: int, zone: tzinfo, wanted: Wanted, c: ChannelFacts, booked: tuple[Held, ...]
) -> Row:
    """One channel's row for one viewer."""
    return _Shaper(ctx, actor, now, zone, wanted, c).row(booked)


class _Shaper:
    """Makes one channel's row."""

    def __init__(self, ctx: Context, actor: Actor, now: int, zone: tzinfo, wanted: Wanted, c: ChannelFacts) -> None:
        self._show, self._actor, self._now, self._zone = ctx.settings.show_holders, actor, now, zone
        self._wanted, self._c = wanted, c

    def row(self, booked: tuple[Held, ...]) -> Row:
        c = self._c
        _, steps = look_ahead(c.input, self._now) if c.input is not None else (None, tuple[PlanStep, ...]())
        items = sorted((self._booking(b) for b in booked), key=lambda i: i.start)
        bands = [] if c.gone else self._bands(items, steps)
        return Row(
            c.anchor, c.full_name, c.name, c.gpus, self._status(c.said, c.decision),
            tuple(sorted([*items, *bands], key=lambda i: i.start)), not c.gone and not c.cordoned,
        )  # fmt: skip

    def _booking(self, b: Held) -> Item:
        now, said, mine = self._now, self._c.said, b.holder_id == self._actor.id
        status, running = b.status_at(now), b.runs(now)
        known = may(self._actor, "reservation.holder", HolderName(b.holder_id, self._show))
        who = _("You") if mine else (b.holder if known else "") or _("somebody")
        kind, icon = ("k-mine" if mine else "k-other"), ""
        if b.maintenance:
            kind, icon, who = "k-maint", "wrench", _("Maintenance")
        elif status == "pending":
            kind, icon, who = "k-pending", "sand", _("%(who)s · pending", who=who)
        elif running and said.fallback:
            kind, icon, who = "k-fail", "oct", _("%(who)s · fallback", who=who)
        elif running and said.failure is not None and said.phase != "ready":
            kind, icon, who = "k-fail", "oct", _("%(who)s · failed", who=who)
        elif b.kind == "exclusive":
            kind, icon, who = "k-excl", "lock", _("%(who)s · exclusive", who=who)
        elif not self._c.online and b.end > now:
            icon, who = "tri", _("%(who)s · at risk", who=who)
        holding = status in ("pending", "approved")
        moves = ("end" if b.start <= now else "all") if mine and holding and not b.maintenance else ""
        tail = _("nothing loaded") if b.kind == "exclusive" and not b.maintenance else ""
        return Item(
            kind, b.start, b.end, icon, who, b.model, b.preset, tail, b.id, b.version, mine, moves,
            "running" if running else status, b.kind,
        )  # fmt: skip

    def _bands(self, items: list[Item], steps: tuple[PlanStep, ...]) -> list[Item]:
        """What runs where nothing is booked: from when it runs, where it runs already."""
        now, found, edge = self._now, list[Item](), self._wanted.start
        since = self._c.step_since or now - now % SINCE_MS
        for start, end in [*((i.start, i.end) for i in items), (self._wanted.end, self._wanted.end)]:
            if min(start, self._wanted.end) > max(edge, now):
                begin = max(edge, min(since, now)) if edge <= now else edge
                found += self._between(begin, min(start, self._wanted.end), steps)
            edge = max(edge, end)
        return found

    def _between(self, start: int, end: int, steps: tuple[PlanStep, ...]) -> Iterator[Item]:
        """[start, end) in pieces, neighbours that look the same as one."""
        last: Item | None = None
        for begin, over, step in self._cut(_pieces(start, end, steps, horizon_end(self._now))):
            item = self._band(begin, over, step)
            if last is not None and (last.kind, last.model, last.preset, last.tail) == (
                item.kind, item.model, item.preset, item.tail,
            ):  # fmt: skip
                item = replace(last, end=item.end)
            elif last is not None:
                yield last
            last = item
        if last is not None:
            yield last

    def _cut(self, pieces: Iterable[tuple[int, int, PlanStep | None]]) -> Iterator[tuple[int, int, PlanStep | None]]:
        """A failure is shown for the present and the next hour: what is after that, nobody knows."""
        soon = (self._now // HOUR + 2) * HOUR
        for begin, over, step in pieces:
            if self._failing and begin <= self._now and soon < over:
                yield begin, soon, step
                begin = soon
            yield begin, over, step

    @property
    def _failing(self) -> bool:
        said = self._c.said
        return said.phase == "blocked" or (said.failure is not None and said.phase == "retry_wait")

    def _band(self, start: int, end: int, step: PlanStep | None) -> Item:
        default = self._c.default
        if not self._c.online:
            return Item("k-off" if start <= self._now else "k-unsure", start, end, "cut", model=default[0],
                        preset=default[1], tail=_("no contact") if start <= self._now else "")  # fmt: skip
        why = step.why if step is not None else "default"
        model, preset = (
            (step.target.model, step.target.preset) if step is not None and step.target is not None else (None, None)
        )
        if step is None or why in ("reserved", "exclusive"):  # past the horizon, or what a request in front leaves open
            why, (model, preset) = ("default" if default[0] else "idle"), default
        if self._failing and start <= self._now:
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
    for index, (step, over) in enumerate(zip(steps, ends, strict=False)):
        begin, over = max(start, step.at if index else start), min(end, over)
        if begin < over:
            yield begin, over, step
    begin = max(start, horizon if steps else start)
    if begin < end:
        yield begin, end, None
