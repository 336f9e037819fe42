"""The nearest free windows for a model (or the bare card) across the fleet, best first, and why.

By start, then nodes that are connected, then windows that need no reload, then what fits in the GPUs' memory. The
number of statements does not depend on the number of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.booking.view import policy_for, speed
from controller.context import Context
from controller.scheduling.booking_rules import DAY
from controller.scheduling.free_slots import free_slots
from controller.store.launches import Catalogue, Launch, read_catalogue
from controller.store.models import exceeds
from controller.store.tables import HOLDING, Channel, Node, NodeModel, Reservation
from controller.times import text_of


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to fit: kind, target, length in ms, and the instant to be near to."""

    kind: str
    model: str | None
    preset: str | None
    length: int
    wanted: int


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
    """{channel, starts_at, ends_at, free_until, reload, load_seconds, exceeds_gpu_memory, online, why} each."""
    rows = _candidates(session, channel_ids)
    if not rows:
        return []
    held, catalogue = _models(session, rows, wish)
    busy = _busy(session, [c.id for c, _ in rows], now, besides)
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    for channel, node in rows:
        fit = _Fit(ctx, channel, node, wish, now)
        if not fit.possible(held, catalogue):
            continue
        for start, end, free_until in free_slots(
            [(r.starts_at, r.ends_at) for r in busy.get(channel.id, [])],
            wish.length,
            max(wish.wanted, now),
            now if earliest is None else max(now, earliest),
            fit.latest(),
            each,
        ):
            rank, shape = fit.shape(start, end, free_until, busy.get(channel.id, []))
            found.append((rank, shape))
    found.sort(key=lambda pair: pair[0])
    return [shape for _, shape in found[:limit]]


class _Fit:
    """One channel beside the wish."""

    def __init__(self, ctx: Context, channel: Channel, node: Node, wish: Wish, now: int) -> None:
        self._ctx, self._channel, self._node, self._wish, self._now = ctx, channel, node, wish, now
        self._policy = policy_for(ctx.settings, channel)
        self._launch: Launch | None = None
        self._size = 0
        self._catalogue: Catalogue | None = None

    def possible(self, held: dict[str, NodeModel], catalogue: Catalogue | None) -> bool:
        wish, channel = self._wish, self._channel
        if self._policy.max_hours is not None and wish.length > self._policy.max_hours * 3_600_000:
            return False
        if wish.kind == "exclusive":
            return self._policy.exclusive_allowed
        row = held.get(channel.node_id)
        if row is None or channel.name not in row.channels or catalogue is None or wish.model is None:
            return False
        self._size, self._catalogue = row.size_bytes, catalogue
        self._launch = catalogue.available(
            channel.node_id, channel.engines, wish.model, wish.preset, speed(self._ctx.settings, self._node)
        )
        return self._launch is not None

    def latest(self) -> int | None:
        ahead = self._policy.max_days_ahead
        return None if ahead is None else int(self._now + ahead * DAY)

    def shape(
        self, start: int, end: int, free_until: int | None, busy: list[Reservation]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        name = f"{self._node.name}/{self._channel.name}"
        reload, too_big = self._reloads(start, busy), exceeds(self._size, self._channel)
        live = self._ctx.live.node(self._node.name).online
        why = [] if live else ["the node is away at present"]
        if self._wish.kind == "model":
            why.append("the model has to be loaded" if reload else "no reload")
        if too_big:
            why.append("exceeds GPU memory")
        why.append(f"free until {text_of(free_until)}" if free_until else "no booking after it")
        shape = {
            "channel": name,
            "starts_at": text_of(start),
            "ends_at": text_of(end),
            "free_until": text_of(free_until),
            "reload": reload,
            "load_seconds": self._launch["load_seconds"] if self._launch else 0.0,
            "exceeds_gpu_memory": too_big,
            "online": live,
            "why": ", ".join(why),
        }
        return (abs(start - self._wish.wanted), not live, reload, too_big, name, start), shape

    def _reloads(self, start: int, busy: list[Reservation]) -> bool:
        if self._launch is None:
            return False
        before = max((r for r in busy if r.ends_at <= start), key=lambda r: r.ends_at, default=None)
        if before is None:
            live = self._ctx.live.channel(self._node.name, self._channel.name)
            return not (live.running == self._launch["identity"] and live.phase in ("ready", "loading"))
        same = before.model == self._wish.model and before.preset == self._wish.preset
        return not (same and before.ends_at == start)


def _candidates(session: Session, channel_ids: list[str] | None) -> list[tuple[Channel, Node]]:
    query = (
        select(Channel, Node)
        .join(Node)
        .where(Node.removed_at.is_(None), Node.cordoned.is_(False), Channel.gone_at.is_(None))
        .order_by(Node.name, Channel.name)
    )
    if channel_ids is not None:
        query = query.where(Channel.id.in_(channel_ids))
    return [(channel, node) for channel, node in session.execute(query)]


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


def _busy(session: Session, channel_ids: list[str], now: int, besides: str | None) -> dict[str, list[Reservation]]:
    query = (
        select(Reservation)
        .where(Reservation.channel_id.in_(channel_ids), Reservation.status.in_(HOLDING), Reservation.ends_at > now)
        .order_by(Reservation.starts_at)
    )
    found: dict[str, list[Reservation]] = {}
    for row in session.scalars(query.where(Reservation.id != besides) if besides else query):
        found.setdefault(row.channel_id, []).append(row)
    return found
