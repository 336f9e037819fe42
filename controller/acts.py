"""The audit in words: what each action is called, what its subject is, and what it changed. One place for REST, CLI and
console (which translates ACTIONS)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.store import channels, users
from controller.store.tables import Audit, Preset, Reservation, SecretLink, User
from controller.times import parse, text_of
from controller.words import N_

ACTIONS: dict[str, str] = {
    "channel.change": N_("changed a channel"),
    "channel.override": N_("set an override"),
    "channel.override_clear": N_("took an override back"),
    "channel.reload": N_("asked for a reload"),
    "channel.retry": N_("asked for a retry"),
    "channel.stop_foreign": N_("stopped somebody else's process"),
    "key.create": N_("made an API key"),
    "key.revoke": N_("revoked an API key"),
    "link.create": N_("made a secret link"),
    "link.revoke": N_("revoked a secret link"),
    "node.invite": N_("invited a node"),
    "node.cordon": N_("took a node out of booking"),
    "node.uncordon": N_("took a node back into booking"),
    "node.disable": N_("disabled a node"),
    "node.enable": N_("enabled a node"),
    "node.remove": N_("removed a node"),
    "preset.create": N_("made a preset"),
    "preset.change": N_("changed a preset"),
    "preset.delete": N_("deleted a preset"),
    "reservation.create": N_("made a booking"),
    "reservation.edit": N_("changed a booking"),
    "reservation.extend": N_("extended a booking"),
    "reservation.approved": N_("approved a request"),
    "reservation.rejected": N_("rejected a request"),
    "reservation.cancelled": N_("cancelled a booking"),
    "reservation.uncancel": N_("took a cancellation back"),
    "reservation.ended_early": N_("ended a booking early"),
    "reservation.finished": N_("a booking was over"),
    "reservation.expired": N_("a request expired"),
    "reservation.reopened": N_("a booking went on: the clock had been ahead"),
    "request.turned_away": N_("wanted a time and was turned away"),
    "target.create": N_("added a webhook or chat service"),
    "target.change": N_("changed a webhook or chat service"),
    "target.remove": N_("removed a webhook or chat service"),
    "message.retry": N_("sent a message again"),
    "session.begin": N_("signed in"),
    "session.end": N_("ended sessions"),
    "user.create": N_("added a person"),
    "user.change": N_("changed an account"),
    "user.password": N_("set a password"),
    "session.refused": N_("was refused a sign-in"),
    "node.enrol": N_("joined as a node"),
    "node.recover": N_("got a new certificate for one that had run out"),
    "controller.start": N_("started"),
    "controller.restore": N_("was restored from a backup"),
    "user.connect": N_("connected an account with the identity provider"),
}


def sentence(row: Audit, actor: str, subject: str) -> str:
    """One line of plain English: who did what, to what, and why."""
    said = f"{actor or 'SlotServe'} {ACTIONS.get(row.action, row.action)}"
    if subject and row.subject != row.actor_id:
        said += f": {subject}"
    return f"{said} ({row.reason})" if row.reason else said


def subjects(session: Session, rows: list[Audit]) -> dict[str, tuple[str, str]]:
    """Row id -> (what the subject is called, its page)."""
    wanted: dict[str, set[str]] = {}
    for row in rows:
        wanted.setdefault(row.action.partition(".")[0], set()).add(row.subject)
    people = _names(session, User, User.name, wanted.get("user", set()) | wanted.get("session", set()))
    links = _names(session, SecretLink, SecretLink.name, wanted.get("link", set()))
    presets = _names(session, Preset, Preset.model + ":" + Preset.name, wanted.get("preset", set()))
    booked = _names(session, Reservation, Reservation.channel_id, wanted.get("reservation", set()))
    places = channels.full_names(session, set(booked.values()))
    made: dict[str, tuple[str, str]] = {}
    for row in rows:
        kind, subject = row.action.partition(".")[0], row.subject
        if kind in ("user", "session"):
            made[row.id] = (people.get(subject, subject), "/admin/users")
        elif kind == "preset":
            made[row.id] = (presets.get(subject, subject), f"/presets/{subject}" if subject in presets else "")
        elif kind == "reservation":
            made[row.id] = (places.get(booked.get(subject, ""), subject), f"/bookings/{subject}")
        elif kind == "channel":
            made[row.id] = (subject, f"/channels/{subject}")
        elif kind == "node":
            made[row.id] = (subject, "/admin/nodes")
        elif kind == "link":
            made[row.id] = (links.get(subject) or subject, "")
        elif kind == "key":
            told = row.after or row.before or {}
            made[row.id] = (str(told.get("name") or subject), "/admin/keys")
    return made


def _names(session: Session, table: Any, column: Any, ids: set[str]) -> dict[str, str]:
    if not ids:
        return {}
    return {row[0]: row[1] for row in session.execute(select(table.id, column).where(table.id.in_(ids)))}


def changes(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """What differs, flat: ("policy.max_hours", "8", "12")."""
    old, new = _flat(before or {}), _flat(after or {})
    names = list(dict.fromkeys([*old, *new]))
    return [(n, old.get(n, ""), new.get(n, "")) for n in names if old.get(n, "") != new.get(n, "")][:40]


class Values:
    """What stands before and after a change, as people read it: names for ids, `clock`'s words for instants."""

    def __init__(self, session: Session, rows: Sequence[Audit], clock: Callable[[int], str | None] = text_of) -> None:
        told = [t for row in rows for t in (row.before, row.after) if t]
        self._clock = clock
        self._channels = channels.full_names(session, {t["channel_id"] for t in told if t.get("channel_id")})
        ids = {t["holder_id"] for t in told if t.get("holder_id")} | {
            p for t in told for p in t.get("participants") or ()
        }
        self._people = users.names(session, ids)

    def said(self, what: str, value: str) -> str:
        name = what.rpartition(".")[2]
        if name == "channel_id":
            return self._channels.get(value, value)
        if name in ("holder_id", "participants"):
            return ", ".join(self._people.get(each, each) for each in value.split(", "))
        at = _instant(name, value)
        return value if at is None else self._clock(at) or value


def _instant(name: str, value: str) -> int | None:
    """Of a time: milliseconds in the fields of a booking, RFC 3339 elsewhere."""
    if name.endswith("_at") and value.isdigit():
        return int(value)
    if not name.endswith(("_at", "until")):
        return None
    try:
        return parse(value)
    except ValueError:
        return None


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif value is not None and value != "" and value != []:
            found[prefix + name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return found
