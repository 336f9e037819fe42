"""Maintenance of a node: from now until an instant no booking begins there. What runs finishes; what would begin before
that instant is flagged and its holder told, with other channels that fit. Nothing is moved or cancelled by itself, and at
the end the node takes bookings again by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from controller.booking import lost, offers
from controller.booking.view import Holder
from controller.context import Context
from controller.notify import inbox
from controller.notify.tell import Event
from controller.rights import Actor
from controller.store import audit, channels, reservations, users
from controller.store.session import Write
from controller.store.tables import Node, Reservation

OFFERED_FOR = 20  # bookings; of more only the list is given


@dataclass(frozen=True, slots=True)
class Preview:
    """What a drain would touch: `running` finish, `touched` would begin before its end (with offers, for the first)."""

    running: list[Reservation]
    touched: list[tuple[Reservation, list[offers.Offer] | None]]  # None: not looked for


def preview(session: Session, ctx: Context, actor: Actor, node: Node, now: int, until: int) -> Preview:
    """Writes nothing."""
    running, coming = _bookings(session, node, now, until)
    roles = {i: user.role for i in {r.holder_id for r in coming} if (user := users.get(session, i))}
    touched: list[tuple[Reservation, list[offers.Offer] | None]] = []
    for index, row in enumerate(coming):
        if index >= OFFERED_FOR:
            touched.append((row, None))
            continue
        holder = Holder(row.holder_id, roles.get(row.holder_id, ""))
        found = offers.elsewhere(session, ctx, actor, holder, row, now)
        touched.append((row, [o for o in found if not o.window.channel.startswith(f"{node.name}/")]))
    return Preview(running, touched)


def offered(found: Preview) -> dict[str, list[offers.Offer]]:
    """The offers of a preview, by booking, for those where they were looked for."""
    return {row.id: those for row, those in found.touched if those is not None}


def drain(
    session: Write, node: Node, now: int, until: int, reason: str, offers_of: Mapping[str, list[offers.Offer]]
) -> None:
    """Cordons until then, flags what would begin before and tells its holders, with the offers that were found for it
    before: looking for them takes long in a big fleet, and nobody else writes meanwhile."""
    lift(session, node, now, told=False)
    node.cordoned, node.drain_until, node.cordon_reason = True, until, reason
    session.flush()
    problem = lost.drained(node)
    for row in _bookings(session, node, now, until)[1]:
        found = offers_of.get(row.id)
        session.execute(update(Reservation).where(Reservation.id == row.id).values(problem=problem))
        others = None if found is None else [
            {"channel": o.window.channel, "starts_at": o.window.slot.start, "ends_at": o.window.slot.end} for o in found
        ]  # fmt: skip
        facts = inbox.booking_facts(session, row) | {"node": node.name, "until": until, "reason": reason}
        facts |= inbox.offered(others)
        inbox.tell_booking(session, Event(f"drain:{node.id}:{until}:{row.id}", "maintenance", row.id, now, facts), row)


def lift(session: Write, node: Node, now: int, told: bool = True) -> None:
    """The node takes bookings again; who was told of a drain that would have gone on is told that it does not."""
    before, node.cordoned, node.drain_until, node.cordon_reason = node.drain_until, False, None, ""
    if before is None:
        return
    _, coming = _bookings(session, node, now, before)
    for row in coming:
        if lost.flag(row.problem) != "node_drained":
            continue
        session.execute(update(Reservation).where(Reservation.id == row.id).values(problem=""))
        if told:
            facts = inbox.booking_facts(session, row) | {"node": node.name, "message": "maintenance_over"}
            event = Event(f"drain:{node.id}:{before}:{row.id}:over", "maintenance", row.id, now, facts)
            inbox.tell_booking(session, event, row)


def over(ctx: Context, now: int) -> list[str]:
    """Ends what is over by now; the names of those nodes."""
    due = select(Node.id).where(Node.drain_until <= now)
    with ctx.store.read() as session:
        if session.scalar(due.limit(1)) is None:
            return []
    names = []
    with ctx.store.write() as session:
        for node_id in session.scalars(due).all():
            node = session.get(Node, node_id)
            assert node is not None
            after: dict[str, Any] = {"cordoned": False}
            audit.add(
                session, None, "node.uncordon", node.name, now, before={"cordoned": node.cordoned}, after=after,
                reason="the time of its maintenance is over",
            )  # fmt: skip
            lift(session, node, now)
            session.touch(*(c.id for c, _ in channels.of_nodes(session, [node.id])))
            names.append(node.name)
    return names


def _bookings(session: Session, node: Node, now: int, until: int) -> tuple[list[Reservation], list[Reservation]]:
    """(running, still to come and beginning before `until`), maintenance left out, by start."""
    places = [c.id for c, _ in channels.of_nodes(session, [node.id])]
    rows = [r for r in reservations.holding_in(session, places, now, until) if not r.maintenance]
    rows.sort(key=lambda r: (r.starts_at, r.id))
    running = [r for r in rows if reservations.is_running(r, now)]
    return running, [r for r in rows if r.starts_at > now]
