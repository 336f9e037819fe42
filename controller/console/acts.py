"""The audit in the reader's language, for its page (acts.py above has the words)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flask_babel import gettext as _
from sqlalchemy.orm import Session

from controller.acts import ACTIONS, changes, subjects
from controller.store.tables import Audit
from controller.words import N_

KINDS = {
    "reservation.": N_("Bookings"),
    "channel.": N_("Channels"),
    "preset.": N_("Presets"),
    "node.": N_("Nodes"),
    "user.": N_("People"),
    "key.": N_("Keys"),
    "session.": N_("Sessions"),
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


def lines(session: Session, rows: Iterable[Audit], names: dict[str, str]) -> list[Line]:
    """The rows in words, in their order."""
    found = list(rows)
    named = subjects(session, found)
    return [
        Line(
            row.id,
            row.at,
            names.get(row.actor_id or "", "") or (row.actor_id or ""),
            row.action,
            _(ACTIONS[row.action]) if row.action in ACTIONS else row.action,
            *named.get(row.id, (row.subject, "")),
            row.reason,
            changes(row.before, row.after),
        )
        for row in found
    ]
