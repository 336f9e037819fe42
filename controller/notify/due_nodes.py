"""What is to be told of nodes that nothing is heard of, and of their return."""

from __future__ import annotations

from collections.abc import Iterator

from controller.notify.due_scene import DAY, Booked, Due, Scene
from controller.notify.tell import Event
from controller.store import notifications
from controller.store.tables import HOLDING, Notification, Reservation

BACK_WITHIN_MS = 14 * DAY


def lost(scene: Scene) -> Iterator[Due]:
    bookings_on: dict[str, list[Booked]] = {}
    for booked in scene.bookings:
        bookings_on.setdefault(booked.node.id, []).append(booked)
    for node in scene.nodes:
        since = scene.lost_since(node)
        if since is None:
            continue
        outage = f"lost:{node.id}:{node.last_seen_at}"
        there = bookings_on.get(node.id, [])
        if not node.cordoned:
            bookings = [
                {
                    "holder": scene.names.get(b.row.holder_id),
                    "channel": b.place,
                    "starts_at": b.row.starts_at,
                    "ends_at": b.row.ends_at,
                }
                for b in there
            ]
            facts = {"node": node.name, "since": since, "bookings": bookings}
            event = Event(outage, "node_lost", node.name, scene.now, facts)
            yield Due(event, scene.administrators(), True)
        for booked in there:
            runs = booked.row.starts_at <= scene.now
            message = "node_lost_running" if runs else "node_lost_before"
            more = {"message": message, "since": since}
            yield from scene.for_sharers(f"{outage}:{booked.row.id}", "node_lost", booked, more, booked)


def back(scene: Scene) -> Iterator[Due]:
    """Whoever was told of a loss is told that it is over, if it still matters to them."""
    told: dict[str, list[Notification]] = {}
    for notice in notifications.of_kind(scene.session, "node_lost", scene.now - BACK_WITHIN_MS):
        told.setdefault(notice.event_id, []).append(notice)
    for event_id, notices in told.items():
        facts = notices[0].facts or {}
        node = str(facts.get("node") or "")
        known = next((n for n in scene.nodes if n.name == node), None)
        if known is None or not scene.ctx.live.node(node).online or f":{known.last_seen_at}" in event_id:
            continue
        if booking := facts.get("reservation_id"):
            row = scene.session.get(Reservation, booking)
            if row is None or row.status not in HOLDING or row.ends_at <= scene.now:
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
        event = Event(f"back:{event_id}"[:96], "node_back", notices[0].subject, scene.now, said)
        yield Due(event, tuple(n.user_id for n in notices), not facts.get("reservation_id"))
