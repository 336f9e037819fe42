"""What happens to people's accounts: a new password, being disabled and let in again; and what that would do, before it
is done. One place for REST, console and log-in by an identity provider. Called in the transaction of the change."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller import sessions, shapes
from controller.notify import together
from controller.rights import Actor
from controller.settings import Settings
from controller.store import audit, channels, links, reservations, web_sessions
from controller.store.session import Write
from controller.store.tables import HOLDING, ApiKey, User


def set_password(
    session: Session, user: User, hashed: str | None, now: int, *, temporary: bool, keep: str = ""
) -> None:
    """A new password (None: none any more). Every session of the person ends, but `keep` (its id)."""
    user.password_hash = hashed
    user.password_temporary = temporary and hashed is not None
    web_sessions.end_all(session, user.id, now, besides=keep)


def disable(session: Write, user: User, actor_id: str | None, reason: str, now: int) -> None:
    """Shuts a person out: sessions end, keys and feeds open nothing, coming bookings are cancelled, the running one ends.
    The history stays."""
    user.disabled_at = now
    web_sessions.end_all(session, user.id, now)
    why = reason or "the account was disabled"
    rows = reservations.of_person(session, user.id, now)
    for row in rows:
        status = "ended_early" if reservations.is_running(row, now) else "cancelled"
        reservations.change(
            session,
            row,
            HOLDING,
            {"status": status, "ended_at": now, "decided_by": actor_id, "reason": why, "committed": False},
            now,
        )
        session.touch(row.channel_id)
        audit.add(session, actor_id, f"reservation.{status}", row.id, now, reason=why)
    together.ended(session, rows, actor_id or "", now, why)


def preview(session: Session, settings: Settings, actor: Actor, user: User, now: int) -> dict[str, Any]:
    """What `disable` would do, for who is asked whether they mean it."""
    rows = reservations.of_person(session, user.id, now)
    where = channels.full_names(session, {r.channel_id for r in rows})
    booked = [
        {
            "id": r.id,
            "channel": where[r.channel_id],
            **shapes.window(r),
            "running": reservations.is_running(r, now),
        }
        for r in rows
    ]
    return {
        "user": shapes.user(user, actor),
        "keys": _live_keys(session, user.id, now),
        "sessions": len(web_sessions.of_person(session, user.id, now, *sessions.limits(settings))),
        "feeds": links.live(session, user.id),
        "ends": [b for b in booked if b["running"]],
        "cancels": [b for b in booked if not b["running"]],
    }


def _live_keys(session: Session, user_id: str, now: int) -> int:
    query = select(func.count()).where(
        ApiKey.user_id == user_id,
        ApiKey.revoked_at.is_(None),
        (ApiKey.expires_at.is_(None)) | (ApiKey.expires_at > now),
    )
    return int(session.scalar(query) or 0)
