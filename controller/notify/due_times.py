"""What is to be told of bookings by the clock, and by what their node says: they start soon, are ready, end soon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select

from controller.fleet.addresses import base_url
from controller.notify.due_scene import DAY, MINUTE, Booked, Due, Scene
from controller.store.tables import Reservation, holding


def times(scene: Scene, booked: Booked) -> Iterator[Due]:
    row, settings, now = booked.row, scene.ctx.settings, scene.now
    before_start = int(settings.notify_starts_soon_minutes * MINUTE)
    decided = max(row.created_at, row.approved_at or 0)
    if 0 < row.starts_at - now <= before_start and decided <= row.starts_at - before_start:
        yield from scene.for_sharers(f"soon:{row.id}:{row.starts_at}", "starts_soon", booked, {})
    before_end = int(settings.notify_ends_soon_minutes * MINUTE)
    begun = max(row.starts_at, row.approved_at or 0)
    if row.starts_at <= now and 0 < row.ends_at - now <= before_end and row.ends_at - begun > 2 * before_end:
        yield from scene.for_sharers(f"ends:{row.id}:{row.ends_at}", "ends_soon", booked, _after(scene, row))


def _after(scene: Scene, row: Reservation) -> dict[str, Any]:
    """What follows on the channel within a day."""
    start = scene.session.scalar(
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


def ready(scene: Scene, booked: Booked) -> Iterator[Due]:
    row = booked.row
    if row.starts_at > scene.now:
        return
    said, live = scene.ctx.live.node(booked.node.name), scene.ctx.live.channel(booked.node.name, booked.channel)
    if row.kind == "exclusive":
        if live.phase == "off":
            gpus = {"gpus": list(booked.gpu_uuids), "host": booked.node.name, "message": "ready_card"}
            yield from scene.for_sharers(f"ready:{row.id}", "ready", booked, gpus)
        return
    if live.phase == "ready" and not live.fallback and booked.started_with and live.running == booked.started_with:
        yield from scene.for_sharers(
            f"ready:{row.id}", "ready", booked, {"base_url": base_url(said, booked.node, booked.channel)}
        )
