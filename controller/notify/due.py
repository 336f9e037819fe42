"""What is to be told by now, from how things are: bookings, nodes' last words, and the clock that is given.

Level-triggered: nothing is remembered but what was told (by the events' ids), so that a controller that was down tells
what still matters and leaves out what does not. Everything here only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from controller.booking import free, lost
from controller.context import Context
from controller.fleet.live import LiveGpuProcess
from controller.notify.tell import Event, for_participants
from controller.store import notifications, users
from controller.store.tables import HOLDING, Channel, Node, Notification, Reservation, holding

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
CARD_SOON_MS = 10 * MINUTE
CARD_SETTLES_MS = 15_000  # a node's status may be so old
CARD_NEWS_MS = HOUR
LOST_AHEAD_MS = 2 * HOUR  # bookings that start later may well see the node again
BACK_WITHIN_MS = 14 * DAY
Pids = Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Due:
    """An event and whom it is for; `shared`: administrators' channels as well."""

    event: Event
    people: tuple[str, ...]
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking and where it is."""

    row: Reservation
    channel: Channel
    node: Node

    @property
    def place(self) -> str:
        return f"{self.node.name}/{self.channel.name}"

    def facts(self, holder: str | None) -> dict[str, Any]:
        row = self.row
        return {
            "reservation_id": row.id,
            "channel": self.place,
            "node": self.node.name,
            "booking_kind": row.kind,
            "model": row.model,
            "preset": row.preset,
            "starts_at": row.starts_at,
            "ends_at": row.ends_at,
            "holder": holder,
        }


class Look:
    """One look at one instant. `since`: when this controller began to look (nodes need time to come back after a
    start); `pids`: what was seen on a bare card while its booking ran, by booking."""

    def __init__(self, session: Session, ctx: Context, now: int, since: int, pids: Pids) -> None:
        self._session, self._ctx, self._now, self._since, self._pids = session, ctx, now, since, pids
        ahead = max(LOST_AHEAD_MS, int(ctx.settings.notify_starts_soon_minutes * MINUTE))
        self.bookings = self._read(
            and_(Reservation.status == "approved", Reservation.ends_at > now, Reservation.starts_at <= now + ahead)
        )
        self.nodes = list(
            session.scalars(select(Node).where(Node.removed_at.is_(None), Node.last_seen_at.is_not(None)))
        )
        self._names = users.names(session, {b.row.holder_id for b in self.bookings})
        self._admins: tuple[str, ...] | None = None

    def events(self, back: bool = True) -> Iterator[Due]:
        """Everything, told already or not. `back`: with the nodes that are back."""
        for booked in self.bookings:
            yield from self._times(booked)
            yield from self._ready(booked)
            yield from self._card_soon(booked)
        yield from self._cards_left()
        yield from self._lost_nodes()
        if back:
            yield from self._nodes_back()

    def connected(self) -> frozenset[tuple[str, int | None]]:
        """The nodes that are there, and since when: something is back only where this has changed."""
        return frozenset((n.name, n.last_seen_at) for n in self.nodes if self._ctx.live.node(n.name).online)

    def running_cards(self) -> dict[str, frozenset[int]]:
        """Other people's processes on the cards of running exclusive bookings, by booking."""
        cards = [b for b in self.bookings if b.row.kind == "exclusive" and b.row.starts_at <= self._now]
        return {b.row.id: frozenset(p.pid for p in self._processes(b)) for b in cards}

    def problems(self) -> dict[str, str]:
        """What is wrong with the place of each of these bookings, in words; empty: nothing."""
        away = {node.id for node in self.nodes if self._lost_since(node) is not None}
        return {b.row.id: self._problem(b, b.node.id in away) for b in self.bookings}

    def _problem(self, booked: Booked, away: bool) -> str:
        row, node = booked.row, booked.node
        if away:
            return lost.no_contact(node.name)
        drained = node.drain_until is not None and self._now < row.starts_at and lost.closed(node, row.starts_at)
        return lost.drained(node) if drained else ""

    # --- by the clock -----------------------------------------------------------------------------------------------

    def _times(self, booked: Booked) -> Iterator[Due]:
        row, settings, now = booked.row, self._ctx.settings, self._now
        before_start = int(settings.notify_starts_soon_minutes * MINUTE)
        decided = max(row.created_at, row.approved_at or 0)
        if 0 < row.starts_at - now <= before_start and decided <= row.starts_at - before_start:
            yield from self._for_sharers(f"soon:{row.id}:{row.starts_at}", "starts_soon", booked)
        before_end = int(settings.notify_ends_soon_minutes * MINUTE)
        begun = max(row.starts_at, row.approved_at or 0)
        if row.starts_at <= now and 0 < row.ends_at - now <= before_end and row.ends_at - begun > 2 * before_end:
            yield from self._for_sharers(f"ends:{row.id}:{row.ends_at}", "ends_soon", booked, **self._after(row))

    def _after(self, row: Reservation) -> dict[str, Any]:
        """What follows on the channel within a day."""
        start = self._session.scalar(
            select(Reservation.starts_at)
            .where(
                Reservation.channel_id == row.channel_id,
                holding(Reservation.status),
                Reservation.starts_at >= row.ends_at,
                Reservation.starts_at < row.ends_at + DAY,
            )
            .order_by(Reservation.starts_at)
            .limit(1)
        )
        if start is None:
            return {"free_after": True}
        return {"next_follows": True} if start == row.ends_at else {"next_at": start}

    # --- by what the nodes say --------------------------------------------------------------------------------------

    def _ready(self, booked: Booked) -> Iterator[Due]:
        row = booked.row
        if row.starts_at > self._now:
            return
        said = self._ctx.live.channel(booked.node.name, booked.channel.name)
        if row.kind == "exclusive":
            if said.phase == "off":
                gpus = {"gpus": list(booked.channel.gpu_uuids), "host": booked.node.name, "message": "ready_card"}
                yield from self._for_sharers(f"ready:{row.id}", "ready", booked, **gpus)
            return
        pinned = (row.pinned or {}).get("identity")
        if said.phase == "ready" and not said.fallback and pinned and said.running == pinned:
            yield from self._for_sharers(f"ready:{row.id}", "ready", booked, base_url=self._base_url(booked))

    def _base_url(self, booked: Booked) -> str | None:
        urls = list(self._ctx.live.node(booked.node.name).gateway_urls) or list(booked.node.gateway_urls or [])
        return f"{str(urls[0]).rstrip('/')}/channels/{booked.channel.name}/v1" if urls else None

    def _card_soon(self, booked: Booked) -> Iterator[Due]:
        row = booked.row
        if row.kind != "exclusive" or not row.starts_at <= self._now or row.ends_at - self._now > CARD_SOON_MS:
            return
        found = self._processes(booked)
        if found:
            facts = {"message": "card_in_use_soon", "processes": _told(found)}
            yield from self._for_sharers(f"card:{row.id}:{row.ends_at}:soon", "card_in_use", booked, **facts)

    def _cards_left(self) -> Iterator[Due]:
        """Bare cards whose booking is over while its processes are still there."""
        now = self._now
        over = self._read(
            and_(
                Reservation.kind == "exclusive",
                Reservation.approved_at.is_not(None),
                Reservation.ends_at > now - 2 * DAY,
                or_(
                    and_(
                        Reservation.status.in_(("approved", "finished")),
                        Reservation.ends_at.between(now - CARD_NEWS_MS, now - CARD_SETTLES_MS),
                    ),
                    and_(
                        Reservation.status == "ended_early",
                        Reservation.ended_at.between(now - CARD_NEWS_MS, now - CARD_SETTLES_MS),
                    ),
                ),
            )
        )
        running = {b.channel.id: b.row for b in self.bookings if b.row.starts_at <= now}
        for booked in over:
            current = running.get(booked.channel.id)
            if current is not None and current.kind == "exclusive" and current.holder_id == booked.row.holder_id:
                continue
            found = self._processes(booked)
            if booked.row.id in self._pids:
                found = [p for p in found if p.pid in self._pids[booked.row.id]]
            elif current is not None and current.kind == "exclusive":
                continue  # whose they are is not known any more
            if found:
                yield from self._left(booked, found)

    def _left(self, booked: Booked, found: list[LiveGpuProcess]) -> Iterator[Due]:
        row = booked.row
        holder = users.names(self._session, [row.holder_id]).get(row.holder_id)
        facts = {**booked.facts(holder), "processes": _told(found), "left_by": holder}

        def due(event: str, message: str, people: Iterable[str], about: dict[str, Any], shared: bool = False) -> Due:
            said = {**facts, **about, "message": message}
            return Due(Event(event, "card_in_use", row.id, self._now, said), tuple(people), shared)

        mine = due(f"card:{row.id}:end:holder", "card_in_use_mine", [row.holder_id], {})
        yield mine
        if row.participants:
            yield Due(for_participants(mine.event), tuple(i for i in row.participants if i != row.holder_id))
        others = [i for i in self._administrators() if i != row.holder_id]
        yield due(f"card:{row.id}:end:admins", "card_in_use_admin", others, {}, True)
        following = next(
            (b for b in self.bookings if b.channel.id == booked.channel.id and b.row.starts_at <= self._now + HOUR),
            None,
        )
        if following is not None and following.row.holder_id != row.holder_id:
            name = self._names.get(following.row.holder_id)
            about = following.facts(name) | {"others": self._others(following)}
            event = f"card:{row.id}:next:{following.row.id}"
            yield due(event, "card_in_use_next", [following.row.holder_id], about)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _lost_since(self, node: Node) -> int | None:
        """Since when nothing has been heard of a node, once that is long enough."""
        said = self._ctx.live.node(node.name)
        if said.online:
            return None
        since = max(said.since or node.last_seen_at or 0, self._since if not said.since else 0)
        return (
            since if self._now - max(since, self._since) >= self._ctx.settings.notify_node_lost_seconds * 1000 else None
        )

    def _lost_nodes(self) -> Iterator[Due]:
        for node in self.nodes:
            since = self._lost_since(node)
            if since is None:
                continue
            outage = f"lost:{node.id}:{node.last_seen_at}"
            there = [b for b in self.bookings if b.node.id == node.id]
            if not node.cordoned:
                bookings = [
                    {
                        "holder": self._names.get(b.row.holder_id),
                        "channel": b.place,
                        "starts_at": b.row.starts_at,
                        "ends_at": b.row.ends_at,
                    }
                    for b in there
                ]
                facts = {"node": node.name, "since": since, "bookings": bookings}
                event = Event(outage, "node_lost", node.name, self._now, facts)
                yield Due(event, self._administrators(), True)
            for booked in there:
                runs = booked.row.starts_at <= self._now
                message = "node_lost_running" if runs else "node_lost_before"
                more = {"message": message, "since": since, "others": self._others(booked)}
                yield from self._for_sharers(f"{outage}:{booked.row.id}", "node_lost", booked, **more)

    def _nodes_back(self) -> Iterator[Due]:
        """Whoever was told of a loss is told that it is over, if it still matters to them."""
        told: dict[str, list[Notification]] = {}
        for notice in notifications.of_kind(self._session, "node_lost", self._now - BACK_WITHIN_MS):
            told.setdefault(notice.event_id, []).append(notice)
        for event_id, notices in told.items():
            facts = notices[0].facts or {}
            node = str(facts.get("node") or "")
            known = next((n for n in self.nodes if n.name == node), None)
            if known is None or not self._ctx.live.node(node).online or f":{known.last_seen_at}" in event_id:
                continue
            if booking := facts.get("reservation_id"):
                row = self._session.get(Reservation, booking)
                if row is None or row.status not in HOLDING or row.ends_at <= self._now:
                    continue
            kept = (
                "node",
                "participant",
                "reservation_id",
                "channel",
                "booking_kind",
                "model",
                "preset",
                "starts_at",
                "ends_at",
            )
            said = {name: facts[name] for name in kept if name in facts}
            event = Event(f"back:{event_id}"[:96], "node_back", notices[0].subject, self._now, said)
            yield Due(event, tuple(n.user_id for n in notices), not facts.get("reservation_id"))

    def _others(self, booked: Booked) -> list[dict[str, Any]]:
        """Channels elsewhere that could serve the rest of a booking, at its time."""
        row = booked.row
        start = max(row.starts_at, self._now)
        wish = free.Wish(row.kind, row.model, row.preset, row.ends_at - start, start)
        found = free.ranked(self._session, self._ctx, wish, self._now, each=1)
        there = [
            w for w in found if w.online and not w.channel.startswith(f"{booked.node.name}/") and w.slot.start == start
        ]
        return [{"channel": w.channel, "starts_at": w.slot.start, "ends_at": w.slot.end} for w in there[:3]]

    # --- parts ------------------------------------------------------------------------------------------------------

    def _for_sharers(self, event_id: str, kind: str, booked: Booked, **more: Any) -> Iterator[Due]:
        """For its holder, and for those who share it in their words."""
        row = booked.row
        event = Event(event_id, kind, row.id, self._now, booked.facts(self._names.get(row.holder_id)) | more)
        yield Due(event, (row.holder_id,))
        if others := tuple(i for i in row.participants if i != row.holder_id):
            yield Due(for_participants(event), others)

    def _processes(self, booked: Booked) -> list[LiveGpuProcess]:
        """What runs on a channel's GPUs and is no engine of ours."""
        said = self._ctx.live.node(booked.node.name)
        if not said.online:
            return []
        gpus = set(booked.channel.gpu_uuids)
        found = {p.pid: p for g in said.gpus if g.uuid in gpus for p in g.processes if p.channel is None}
        return [found[pid] for pid in sorted(found)]

    def _administrators(self) -> tuple[str, ...]:
        if self._admins is None:
            self._admins = tuple(users.administrators(self._session))
        return self._admins

    def _read(self, which: Any) -> list[Booked]:
        query = (
            select(Reservation, Channel, Node)
            .join(Channel, Channel.id == Reservation.channel_id)
            .join(Node, Node.id == Channel.node_id)
            .where(which, Node.removed_at.is_(None), Channel.gone_at.is_(None), Reservation.maintenance.is_(False))
            .order_by(Reservation.starts_at, Reservation.id)
        )
        return [Booked(*row) for row in self._session.execute(query)]


def _told(found: Iterable[LiveGpuProcess]) -> list[dict[str, Any]]:
    return [{"pid": p.pid, "user": p.user, "command": p.command, "memory_bytes": p.memory_bytes} for p in found]
