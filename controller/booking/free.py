"""The nearest free windows for a model (or the bare card) across the fleet, best first, and why.

By start, then nodes that are connected, then windows that need no reload, then what fits in the GPUs' memory. The
number of statements does not depend on the number of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from controller.booking.view import policy_for, speed
from controller.context import Context
from controller.said import joined, say
from controller.scheduling.free_slots import Slot, free_slots
from controller.scheduling.policies import DAY, HOUR
from controller.store.launches import Catalogue, Launch, missing_of, read_catalogue
from controller.store.models import exceeds
from controller.store.tables import Channel, Node, NodeModel, Reservation, holding
from controller.times import text_of


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to fit: kind, target, length in ms, the instant to be near to; for whom (id, role), where that counts."""

    kind: str
    model: str | None
    preset: str | None
    length: int
    wanted: int
    person: tuple[str, str] | None = None


def windows(
    session: Session,
    ctx: Context,
    wish: Wish,
    now: int,
    *,
    channel_ids: list[str] | None = None,
    besides: str | None = None,
    limit: int = 10,
    each: int = 3,
    earliest: int | None = None,
) -> list[dict[str, Any]]:
    """{channel, starts_at, ends_at, free_until, reload, load_seconds, exceeds_gpu_memory, incomplete, online, why} each; best
    first, those where the model is incomplete last."""
    found = ranked(session, ctx, wish, now, channel_ids=channel_ids, besides=besides, each=each, earliest=earliest)
    return [window.shape() for window in found[:limit]]


def ranked(
    session: Session,
    ctx: Context,
    wish: Wish,
    now: int,
    *,
    channel_ids: list[str] | None = None,
    besides: str | None = None,
    each: int = 3,
    earliest: int | None = None,
) -> list[Window]:
    """Every window, best first, at most `each` a channel; made into words by its `shape` only where it is shown."""
    rows = _candidates(session, channel_ids)
    if not rows:
        return []
    held, catalogue = _models(session, rows, wish)
    busy = _busy(session, channel_ids, now, besides)
    found: list[Window] = []
    for channel, node in rows:
        fit = _Fit(ctx, channel, node, wish, now)
        if not fit.possible(held, catalogue):
            continue
        taken = busy.get(channel.id, [])
        slots = free_slots(
            [(r.starts_at, r.ends_at) for r in taken],
            wish.length,
            max(wish.wanted, now),
            max(now, earliest or 0, fit.opens),
            fit.latest(),
            each,
        )
        found += [fit.window(slot, taken) for slot in slots]
    found.sort(key=lambda window: window.rank)
    return found


@dataclass(frozen=True, slots=True)
class Window:
    """A free window and its place among others."""

    rank: tuple[Any, ...]
    channel: str
    slot: Slot
    fit: _Fit
    online: bool
    reload: bool
    too_big: bool
    missing: str

    def shape(self) -> dict[str, Any]:
        """As `windows` says."""
        start, end, free_until = self.slot
        why = [] if self.online else [say("the node is away at present")]
        if self.fit.wish.kind == "model":
            why.append(say("the model has to be loaded") if self.reload else say("no reload"))
        if self.missing:
            why.append(say("the model is incomplete there (%(missing)s)", missing=self.missing))
        if self.too_big:
            why.append(say("exceeds GPU memory"))
        why.append(
            say("free until %(time)s", time=text_of(free_until) or "") if free_until else say("no booking after it")
        )
        return {
            "channel": self.channel,
            "starts_at": text_of(start),
            "ends_at": text_of(end),
            "free_until": text_of(free_until),
            "reload": self.reload,
            "load_seconds": self.fit.load_seconds,
            "exceeds_gpu_memory": self.too_big,
            "incomplete": bool(self.missing),
            "online": self.online,
            "why": joined(why, ", "),
        }


class _Fit:
    """One channel beside the wish."""

    def __init__(self, ctx: Context, channel: Channel, node: Node, wish: Wish, now: int) -> None:
        self._ctx, self._channel, self._node, self.wish, self._now = ctx, channel, node, wish, now
        self._policy = policy_for(ctx.settings, channel)
        self._launch: Launch | None = None
        self._size, self._missing = 0, ""
        self._catalogue: Catalogue | None = None

    def possible(self, held: dict[str, NodeModel], catalogue: Catalogue | None) -> bool:
        wish, channel = self.wish, self._channel
        if wish.person and wish.person[1] != "admin" and not self._policy.admits(*wish.person):
            return False
        if self._policy.max_hours is not None and wish.length > self._policy.max_hours * HOUR:
            return False
        if wish.kind == "exclusive":
            return self._policy.exclusive_allowed
        row = held.get(channel.node_id)
        if row is None or channel.name not in row.channels or catalogue is None or wish.model is None:
            return False
        self._size, self._missing, self._catalogue = row.size_bytes, missing_of(row), catalogue
        self._launch = catalogue.available(
            channel.node_id, channel.engines, wish.model, wish.preset, speed(self._ctx.settings, self._node)
        )
        return self._launch is not None

    @property
    def opens(self) -> int:
        """When the end of its maintenance lets bookings begin there; 0: they may now."""
        return (self._node.drain_until or 0) if self._node.cordoned else 0

    def latest(self) -> int | None:
        ahead = self._policy.max_days_ahead
        return None if ahead is None else int(self._now + ahead * DAY)

    @property
    def load_seconds(self) -> float:
        return self._launch["load_seconds"] if self._launch else 0.0

    def window(self, slot: Slot, busy: list[_Busy]) -> Window:
        """`busy` by start."""
        name = f"{self._node.name}/{self._channel.name}"
        reload, too_big = self._reloads(slot.start, busy), exceeds(self._size, self._channel)
        online = self._ctx.live.node(self._node.name).online
        rank = (bool(self._missing), abs(slot.start - self.wish.wanted), not online, reload, too_big, name, slot.start)
        return Window(rank, name, slot, self, online, reload, too_big, self._missing)

    def _reloads(self, start: int, busy: list[_Busy]) -> bool:
        if self._launch is None:
            return False
        before = max((r for r in busy if r.ends_at <= start), key=lambda r: r.ends_at, default=None)
        if before is None:
            live = self._ctx.live.channel(self._node.name, self._channel.name)
            return not (live.running == self._launch["identity"] and live.phase in ("ready", "loading"))
        same = before.model == self.wish.model and before.preset == self.wish.preset
        return not (same and before.ends_at == start)


def _candidates(session: Session, channel_ids: list[str] | None) -> list[tuple[Channel, Node]]:
    """As plain rows of what is looked at here, only to be read: every refusal looks at the whole fleet."""
    of_nodes = select(Node.id, Node.name, Node.cordoned, Node.drain_until, Node.own_settings).where(
        Node.removed_at.is_(None), or_(Node.cordoned.is_(False), Node.drain_until.is_not(None))
    )
    row = Channel
    of_channels = select(row.id, row.node_id, row.name, row.engines, row.policy, row.gpu_memory_bytes).where(
        row.gone_at.is_(None)
    )
    if channel_ids is not None:
        of_channels = of_channels.where(row.id.in_(channel_ids))
    nodes = {node.id: cast("Node", node) for node in session.execute(of_nodes)}
    found = cast("list[Channel]", session.execute(of_channels).all())
    return [(channel, nodes[channel.node_id]) for channel in found if channel.node_id in nodes]


def _models(
    session: Session, rows: list[tuple[Channel, Node]], wish: Wish
) -> tuple[dict[str, NodeModel], Catalogue | None]:
    if wish.kind != "model" or wish.model is None:
        return {}, None
    held = {
        m.node_id: m
        for m in session.scalars(select(NodeModel).where(NodeModel.name == wish.model, NodeModel.gone_at.is_(None)))
    }
    nodes = sorted({n.id for _, n in rows} & held.keys())
    return held, read_catalogue(session, nodes, (wish.model,))


class _Busy(NamedTuple):
    """What is needed of a booking that is in the way."""

    channel_id: str
    starts_at: int
    ends_at: int
    model: str | None
    preset: str | None


def _busy(session: Session, channel_ids: list[str] | None, now: int, besides: str | None) -> dict[str, list[_Busy]]:
    query = (
        select(*(getattr(Reservation, name) for name in _Busy._fields))
        .where(holding(Reservation.status), Reservation.ends_at > now)
        .order_by(Reservation.starts_at)
    )
    if channel_ids is not None:
        query = query.where(Reservation.channel_id.in_(channel_ids))
    if besides:
        query = query.where(Reservation.id != besides)
    found: dict[str, list[_Busy]] = {}
    for row in session.execute(query):
        found.setdefault(row.channel_id, []).append(_Busy(*row))
    return found
