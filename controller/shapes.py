"""How rows look in answers, the privacy rules applied: one place for REST, console pages and exports."""

from __future__ import annotations

from typing import Any

from controller.booking import lost as places
from controller.rights import Actor, HolderName, Owned, may
from controller.store import reservations
from controller.store.tables import HOLDING, ApiKey, Audit, Preset, Reservation, User
from controller.times import text_of


def user(row: User, actor: Actor) -> dict[str, Any]:
    """A person; the private part for themselves and administrators."""
    shape: dict[str, Any] = {"id": row.id, "name": row.name, "role": row.role, "disabled": row.disabled_at is not None}
    if actor.role == "admin" or actor.id == row.id:
        shape |= {
            "email": row.email,
            "locale": row.locale,
            "zone": row.zone,
            "created_at": text_of(row.created_at),
            "disabled_at": text_of(row.disabled_at),
            "has_password": row.password_hash is not None,
            "password_temporary": row.password_temporary,
        }
    return shape


def key(row: ApiKey, owner: str | None, now: int) -> dict[str, Any]:
    """An API key without its secret."""
    return {
        "id": row.id,
        "name": row.name,
        "prefix": row.prefix,
        "user_id": row.user_id,
        "user": owner,
        "created_at": text_of(row.created_at),
        "expires_at": text_of(row.expires_at),
        "revoked_at": text_of(row.revoked_at),
        "last_used_at": text_of(row.last_used_at),
        "active": row.revoked_at is None and (row.expires_at is None or row.expires_at > now),
    }


def window(row: Reservation) -> dict[str, Any]:
    return {"starts_at": text_of(row.starts_at), "ends_at": text_of(row.ends_at)}


def target(model: str | None, preset: str | None) -> dict[str, Any] | None:
    """{model, preset}, or None for nothing."""
    return None if model is None else {"model": model, "preset": preset}


def holder(row: Reservation, names: dict[str, str], actor: Actor, show_holders: str) -> dict[str, Any]:
    """The holder's name and id, or nulls for who may not know."""
    shown = may(actor, "reservation.holder", HolderName(row.holder_id, show_holders))
    return {
        "holder": names.get(row.holder_id) if shown else None,
        "holder_id": row.holder_id if shown else None,
        "mine": row.holder_id == actor.id,
    }


def brief(row: Reservation, names: dict[str, str], actor: Actor, show_holders: str, now: int) -> dict[str, Any]:
    """A booking as it stands on a channel: when, what, whose."""
    return {
        "id": row.id,
        "kind": row.kind,
        "model": row.model,
        "preset": row.preset,
        **window(row),
        "status": reservations.status_at(row, now),
        "running": reservations.is_running(row, now),
        "version": row.version,
        "maintenance": row.maintenance,
        **holder(row, names, actor, show_holders),
    }


def reservation(
    row: Reservation,
    channel: str,
    names: dict[str, str],
    actor: Actor,
    show_holders: str,
    now: int,
    lost: str | None = None,
) -> dict[str, Any]:
    """A booking in full; note, participants and reasons for those they are meant for. `lost`: its channel is not there any
    more. What is wrong with its place is said while it holds its time."""
    problem, flags = places.told(row, lost) if reservations.status_at(row, now) in HOLDING else (None, [])
    shape = {
        **brief(row, names, actor, show_holders, now),
        "channel": channel,
        "series_id": row.series_id,
        "problem": problem,
        "flags": flags,
        "created_at": text_of(row.created_at),
        "approved_at": text_of(row.approved_at),
        "ended_at": text_of(row.ended_at),
        "booked_by": None,
        "note": None,
        "participants": None,
        "participant_names": None,
        "reason": None,
        "decided_by": None,
    }
    if may(actor, "reservation.details", row):
        shape |= {
            "booked_by": names.get(row.booked_by),
            "note": row.note,
            "participants": list(row.participants),
            "participant_names": [names.get(p) for p in row.participants],
            "reason": row.reason or None,
            "decided_by": names.get(row.decided_by) if row.decided_by else None,
        }
    elif shape["holder"] is not None:
        shape["booked_by"] = names.get(row.booked_by)
    return shape


def people_of(rows: list[Reservation]) -> set[str | None]:
    """Everybody whose name an answer about these bookings may need."""
    return {i for r in rows for i in (r.holder_id, r.booked_by, r.decided_by, *r.participants)}


def preset(
    row: Preset, actor: Actor, names: dict[str, str], dropped: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    """A preset; the values of its environment for its owner and administrators only."""
    values = bool(may(actor, "preset.environment", Owned(row.owner_id)))
    shape: dict[str, Any] = {
        "id": row.id,
        "model": row.model,
        "name": row.name,
        "engine": row.engine,
        "args": list(row.args),
        "env": {name: (value if values else None) for name, value in row.env.items()},
        "load_timeout_seconds": row.load_timeout_seconds,
        "owner_id": row.owner_id,
        "owner": names.get(row.owner_id) if row.owner_id else None,
        "version": row.version,
        "created_at": text_of(row.created_at),
        "updated_at": text_of(row.updated_at),
    }
    if dropped is not None:
        shape["dropped"] = dropped
    return shape


def audit(row: Audit, names: dict[str, str]) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": text_of(row.at),
        "actor_id": row.actor_id,
        "actor": names.get(row.actor_id) if row.actor_id else None,
        "action": row.action,
        "subject": row.subject,
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
    }
