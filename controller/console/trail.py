"""What became of a booking, from the audit: who did what when, and what it changed. In words for its page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.context import Context
from controller.rights import Actor, HolderName, may
from controller.store import channels, users
from controller.store.tables import Audit
from controller.words import N_

# action of the audit -> what is said of it
ACTS: dict[str, str] = {
    "reservation.create": N_("booked"),
    "reservation.edit": N_("changed"),
    "reservation.approved": N_("approved"),
    "reservation.rejected": N_("rejected"),
    "reservation.cancelled": N_("cancelled"),
    "reservation.ended_early": N_("ended early"),
    "reservation.finished": N_("finished"),
    "reservation.expired": N_("expired: nobody decided in time"),
    "reservation.reopened": N_("went on: the clock had been ahead"),
    "request.turned_away": N_("wanted this time and was turned away"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `who` is empty for the controller itself; `was` and `now` are windows where they changed."""

    at: int
    who: str
    what: str
    reason: str
    was: tuple[int, int] | None = None
    now: tuple[int, int] | None = None
    channel: str = ""
    target: str = ""
    asked: bool = False


def of_booking(db: Session, ctx: Context, actor: Actor, reservation_id: str) -> list[Entry]:
    """Oldest first."""
    query = select(Audit).where(Audit.subject == reservation_id).order_by(Audit.id)
    return _entries(db, ctx, actor, list(db.scalars(query)))


def decisions(db: Session, ctx: Context, actor: Actor, limit: int) -> list[tuple[str, Entry]]:
    """(booking's id, what was decided) of requests, newest first."""
    wanted = ("reservation.approved", "reservation.rejected", "reservation.expired")
    rows = list(db.scalars(select(Audit).where(Audit.action.in_(wanted)).order_by(Audit.id.desc()).limit(limit)))
    return list(zip((r.subject for r in rows), _entries(db, ctx, actor, rows), strict=True))


def names(db: Session, ids: Iterable[str | None]) -> dict[str, str]:
    return users.names(db, [i for i in ids if i])


def _entries(db: Session, ctx: Context, actor: Actor, rows: list[Audit]) -> list[Entry]:
    known = names(db, [r.actor_id for r in rows])
    places = channels.places(db, {c for r in rows if (c := (r.after or {}).get("channel_id"))})
    return [_entry(row, known, places, ctx, actor) for row in rows]


def _entry(row: Audit, known: dict[str, str], places: dict[str, Any], ctx: Context, actor: Actor) -> Entry:
    before, after = row.before or {}, row.after or {}
    shown = row.actor_id and may(actor, "reservation.holder", HolderName(row.actor_id, ctx.settings.show_holders))
    edit = row.action == "reservation.edit"
    moved = edit and _window(before) != _window(after)
    other = edit and before.get("channel_id") != after.get("channel_id")
    target = edit and (before.get("model"), before.get("preset")) != (after.get("model"), after.get("preset"))
    return Entry(
        row.at,
        (known.get(row.actor_id or "", "") if shown else "?") if row.actor_id else "",
        ACTS.get(row.action, row.action.partition(".")[2].replace("_", " ")),
        row.reason,
        _window(before) if moved else None,
        _window(after) if moved or row.action in ("reservation.create", "request.turned_away") else None,
        places.get(str(after.get("channel_id")), ("",))[0] if other else "",
        ":".join(x for x in (after.get("model"), after.get("preset")) if x) if target else "",
        asked=after.get("status") == "pending",
    )


def _window(values: dict[str, Any]) -> tuple[int, int] | None:
    start, end = values.get("starts_at"), values.get("ends_at")
    return (start, end) if isinstance(start, int) and isinstance(end, int) else None
