"""What is to be told of bare cards whose processes stay: before their booking's end, and when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import and_, or_

from controller.fleet.live import LiveGpuProcess
from controller.notify.due_scene import DAY, HOUR, MINUTE, Booked, Due, Scene
from controller.notify.tell import Event, for_participants
from controller.store import users
from controller.store.tables import Reservation

CARD_SOON_MS = 10 * MINUTE
CARD_SETTLES_MS = 15_000  # a node's status may be so old
CARD_NEWS_MS = HOUR
Pids = Mapping[str, frozenset[int]]


def soon(scene: Scene, booked: Booked) -> Iterator[Due]:
    row = booked.row
    if row.kind != "exclusive" or not row.starts_at <= scene.now or row.ends_at - scene.now > CARD_SOON_MS:
        return
    found = scene.processes(booked)
    if found:
        facts = {"message": "card_in_use_soon", "processes": _told(found)}
        yield from scene.for_sharers(f"card:{row.id}:{row.ends_at}:soon", "card_in_use", booked, facts)


def left(scene: Scene, pids: Pids) -> Iterator[Due]:
    """Bare cards whose booking is over while its processes are still there. `pids`: what was seen on a card while its
    booking ran, by booking."""
    now = scene.now
    over = scene.read(
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
    running = {b.row.channel_id: b.row for b in scene.bookings if b.row.starts_at <= now}
    for booked in over:
        current = running.get(booked.row.channel_id)
        if current is not None and current.kind == "exclusive" and current.holder_id == booked.row.holder_id:
            continue
        found = scene.processes(booked)
        if booked.row.id in pids:
            found = [p for p in found if p.pid in pids[booked.row.id]]
        elif current is not None and current.kind == "exclusive":
            continue  # whose they are is not known any more
        if found:
            yield from _of_one(scene, booked, found)


def _of_one(scene: Scene, booked: Booked, found: list[LiveGpuProcess]) -> Iterator[Due]:
    row = booked.row
    holder = users.names(scene.session, [row.holder_id]).get(row.holder_id)
    facts = {**booked.facts(holder), "processes": _told(found), "left_by": holder}

    def due(event: str, message: str, people: Iterable[str], about: dict[str, Any], shared: bool = False) -> Due:
        said = {**facts, **about, "message": message}
        return Due(Event(event, "card_in_use", row.id, scene.now, said), tuple(people), shared)

    mine = due(f"card:{row.id}:end:holder", "card_in_use_mine", [row.holder_id], {})
    yield mine
    if row.participants:
        yield Due(for_participants(mine.event), tuple(i for i in row.participants if i != row.holder_id))
    others = [i for i in scene.administrators() if i != row.holder_id]
    yield due(f"card:{row.id}:end:admins", "card_in_use_admin", others, {}, True)
    following = next(
        (b for b in scene.bookings if b.row.channel_id == row.channel_id and b.row.starts_at <= scene.now + HOUR),
        None,
    )
    if following is not None and following.row.holder_id != row.holder_id:
        name = scene.names.get(following.row.holder_id)
        event = f"card:{row.id}:next:{following.row.id}"
        told = due(event, "card_in_use_next", [following.row.holder_id], following.facts(name))
        yield replace(told, without=following)


def _told(found: Iterable[LiveGpuProcess]) -> list[dict[str, Any]]:
    return [{"pid": p.pid, "user": p.user, "command": p.command, "memory_bytes": p.memory_bytes} for p in found]
