"""What a booking was used for: the requests of those who may call in its time, so that an idle one is seen."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller.said import say
from controller.store import channels
from controller.store.tables import Reservation, Usage
from controller.times import text_of

IDLE_MS = 15 * 60 * 1000  # without a call, before it is said


def of(session: Session, row: Reservation, now: int) -> dict[str, Any] | None:
    """{requests, last_at} of a model's booking that has begun; None: there is nothing to count."""
    found = channels.by_id(session, row.channel_id)
    if row.kind != "model" or row.status in ("pending", "rejected", "expired") or row.starts_at > now or not found:
        return None
    channel, _node = found
    end = min(now, row.ends_at, row.ended_at or row.ends_at)
    query = select(func.count(), func.max(Usage.at)).where(
        Usage.node_id == channel.node_id,
        Usage.channel == channel.name,
        Usage.at >= row.starts_at,
        Usage.at < end,
        Usage.user_id.in_([row.holder_id, *(row.participants or ())]),
    )
    requests, last = session.execute(query).one()
    return {"requests": requests, "last_at": text_of(last)}


def hints(row: Reservation, counted: dict[str, Any] | None, now: int) -> list[dict[str, str]]:
    """That a running one is idle. Approved late, it begins then."""
    begun = max(row.starts_at, row.approved_at or 0)
    idle = now - begun
    if counted is None or counted["requests"] or row.status != "approved" or now >= row.ends_at or idle < IDLE_MS:
        return []
    message = say("Nobody has called it since it began, %(minutes)s minutes ago.", minutes=idle // 60_000)
    return [{"code": "not_called", "message": message}]
