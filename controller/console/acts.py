"""The audit in the reader's language, for its page (acts.py above has the words)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flask_babel import gettext as _
from sqlalchemy.orm import Session

from controller.acts import ACTIONS, changes, subjects
from controller.store import channels, users
from controller.store.tables import Audit
from controller.times import parse
from controller.words import N_, STATUSES, field_words

KINDS = {
    "reservation.": N_("Bookings"),
    "channel.": N_("Channels"),
    "preset.": N_("Presets"),
    "node.": N_("Nodes"),
    "user.": N_("People"),
    "key.": N_("Keys"),
    "session.": N_("Sessions"),
}
# values that are words of ours
WORDS = {
    "True": N_("yes"),
    "False": N_("no"),
    "exclusive": N_("exclusive"),
    "oidc": N_("by the identity provider"),
    "password": N_("by a password"),
    "user": N_("user"),
    "approver": N_("approver"),
    "admin": N_("administrator"),
    "zh_Hans": N_("Chinese"),
    "en": N_("English"),
    **STATUSES,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One row for people. `href` leads to the subject where it has a page; `changes` are (what, before, after)."""

    id: str
    at: int
    actor: str
    action: str
    words: str
    subject: str
    href: str
    reason: str
    changes: list[tuple[str, str, str]]


def lines(session: Session, rows: Iterable[Audit], names: dict[str, str], clock: Callable[[int], str]) -> list[Line]:
    """The rows in words, in their order; `clock` says an instant in the reader's time."""
    found = list(rows)
    named = subjects(session, found)
    values = _Values(session, found, clock)
    return [
        Line(
            row.id,
            row.at,
            names.get(row.actor_id or "", "") or (row.actor_id or ""),
            row.action,
            _(ACTIONS[row.action]) if row.action in ACTIONS else row.action,
            *named.get(row.id, (row.subject, "")),
            row.reason,
            [
                (_(field_words(what)), values.said(what, old), values.said(what, new))
                for what, old, new in changes(row.before, row.after)
            ],
        )
        for row in found
    ]


class _Values:
    """What stands before and after a change, as people read it: names for ids, their own time, words for flags."""

    def __init__(self, session: Session, rows: list[Audit], clock: Callable[[int], str]) -> None:
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
        if value in WORDS:
            return _(WORDS[value])
        at = _instant(name, value)
        return value if at is None else self._clock(at)


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
