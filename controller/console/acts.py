"""The audit in the reader's language, for its page (acts.py above has the words)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flask_babel import gettext as _
from sqlalchemy.orm import Session

from controller.acts import ACTIONS, Values, changes, subjects
from controller.store.tables import Audit
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
    values = Values(session, found, clock)
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
                (_(field_words(what)), _said(values, what, old), _said(values, what, new))
                for what, old, new in changes(row.before, row.after)
            ],
        )
        for row in found
    ]


def _said(values: Values, what: str, value: str) -> str:
    return _(WORDS[value]) if value in WORDS else values.said(what, value)
