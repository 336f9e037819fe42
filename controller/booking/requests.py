"""A request as its approver sees it: which limits it breaks, since when it blocks the time and whom it turned away, and
what the requester uses otherwise. The number of statements does not depend on the number of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.booking.refusals import TURNED_AWAY
from controller.booking.view import booking_of, policy_for
from controller.rights import Actor, HolderName, may
from controller.scheduling.booking_rules import Facts, over_limits
from controller.scheduling.policies import Taken, held_hours, week_hours, week_of
from controller.settings import Settings
from controller.store import reservations, users
from controller.store.tables import Audit, Channel, Reservation, User
from controller.times import text_of


def describe(
    session: Session, settings: Settings, actor: Actor, rows: Sequence[Reservation], now: int
) -> dict[str, dict[str, Any]]:
    """By id: {over_limits[], since, blocked_seconds, turned_away[], requester {…}} of those that wait for a decision;
    nothing for people who may not decide."""
    waiting = [r for r in rows if reservations.status_at(r, now) == "pending"]
    if not waiting or not may(actor, "reservation.decide"):
        return {}
    channels = {
        c.id: c for c in session.scalars(select(Channel).where(Channel.id.in_({r.channel_id for r in waiting})))
    }
    people = {u.id: u for u in session.scalars(select(User).where(User.id.in_({r.holder_id for r in waiting})))}
    since = week_of(min(now, *(r.starts_at for r in waiting)))
    had = reservations.of_people(session, people.keys(), since)
    away = _turned_away(session, settings, actor, [r.id for r in waiting])
    found = {}
    for row in waiting:
        policy = policy_for(settings, channels[row.channel_id])
        mine = [r for r in had.get(row.holder_id, []) if r.id != row.id]
        here = tuple(Taken(r.start, r.end, r.holds) for r in mine if r.channel_id == row.channel_id)
        holder = people.get(row.holder_id)
        facts = Facts(holder_id=row.holder_id, holder_role=holder.role if holder else "", taken=here)
        every = [Taken(r.start, r.end, r.holds) for r in mine]
        found[row.id] = {
            "over_limits": [p.message for p in over_limits(booking_of(row), "user", policy, facts, now)],
            "since": text_of(row.created_at),
            "blocked_seconds": max(0, now - row.created_at) / 1000,
            "turned_away": away.get(row.id, []),
            "requester": {
                "disabled": holder is None or holder.disabled_at is not None,
                "bookings": sum(t.holds and t.end > now for t in every),
                "hours_held": round(held_hours(every, now), 2),
                "hours_week": round(week_hours(every, week_of(row.starts_at)), 2),
            },
        }
    return found


def _turned_away(session: Session, settings: Settings, actor: Actor, ids: list[str]) -> dict[str, list[dict[str, Any]]]:
    """By request: who wanted its time meanwhile, each wish once."""
    query = select(Audit).where(Audit.action == TURNED_AWAY, Audit.subject.in_(ids)).order_by(Audit.id)
    rows = list(session.scalars(query))
    names = users.names(session, {r.actor_id for r in rows})
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        after = row.after or {}
        shown = may(actor, "reservation.holder", HolderName(row.actor_id or "", settings.show_holders))
        wish = {
            "who": names.get(row.actor_id or "") if shown else None,
            "starts_at": text_of(after.get("starts_at")),
            "ends_at": text_of(after.get("ends_at")),
        }
        if wish not in found.setdefault(row.subject, []):
            found[row.subject].append(wish)
    return found
