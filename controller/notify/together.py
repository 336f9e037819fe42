"""One act on several bookings (a repeated one; all of somebody who is shut out): everybody whom any of them concerns is
told once, with all of their own dates in one notice.

Whoever holds some of them and shares others hears of all as a holder. As in inbox.py, in the transaction of the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from controller.notify.inbox import booking_facts
from controller.notify.tell import Event, for_participants, tell
from controller.store import channels, users
from controller.store.tables import Reservation


def booked(session: Session, rows: Sequence[Reservation], actor_id: str, now: int) -> None:
    """A repeated booking was made: its holder, where somebody else made it, and whoever shares it."""
    for people, theirs, shares in _by_person(rows, actor_id):
        kind, more = ("participant", {"message": "participant"}) if shares else ("booked", {})
        facts = {"pending": any(r.status == "pending" for r in theirs), **more}
        _tell(session, kind, people, theirs, shares, facts, actor_id, now)


def ended(session: Session, rows: Sequence[Reservation], actor_id: str, now: int, reason: str) -> None:
    """Bookings were cancelled, or ended where they ran."""
    for people, theirs, shares in _by_person(rows, actor_id):
        ran = [r for r in theirs if r.status == "ended_early"]
        kind = "ended" if len(ran) == len(theirs) else "cancelled"
        facts = {"reason": reason.strip(), "one_ran": kind == "cancelled" and bool(ran)}
        _tell(session, kind, people, theirs, shares, facts, actor_id, now)


def requested(session: Session, rows: Sequence[Reservation], now: int) -> None:
    """Bookings wait for approval: approvers and administrators are told (whoever asks knows it already)."""
    first = rows[0]
    people = [i for i in users.deciders(session) if i != first.holder_id]
    facts = booking_facts(session, first) | {"note": first.note} | dates(session, rows)
    tell(
        session, Event(f"requested:{first.id}:{first.version}", "requested", first.id, now, facts), people, shared=True
    )


def dates(session: Session, rows: Sequence[Reservation]) -> dict[str, Any]:
    """All the windows of several bookings; each with its place and model where these are not one and the same."""
    if len(rows) == 1:
        return {}
    places = channels.full_names(session, {r.channel_id for r in rows})
    same = len({(r.channel_id, r.kind, r.model, r.preset) for r in rows}) == 1
    said = []
    for row in rows:
        window: dict[str, Any] = {"starts_at": row.starts_at, "ends_at": row.ends_at}
        if not same:
            window |= {"channel": places.get(row.channel_id), "model": row.model, "preset": row.preset}
        said.append(window)
    return {"dates": said}


def _by_person(rows: Sequence[Reservation], actor_id: str) -> Iterator[tuple[list[str], list[Reservation], bool]]:
    """(people, the bookings that concern them, whether they only share them), each person once, without who did it."""
    theirs: dict[str, list[Reservation]] = {}
    for row in rows:
        for person in dict.fromkeys((row.holder_id, *row.participants)):
            theirs.setdefault(person, []).append(row)
    theirs.pop(actor_id, None)
    groups: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for person, concerned in theirs.items():
        shares = all(r.holder_id != person for r in concerned)
        groups.setdefault((tuple(r.id for r in concerned), shares), []).append(person)
    for (_, shares), people in groups.items():
        yield people, theirs[people[0]], shares


def _tell(
    session: Session,
    kind: str,
    people: list[str],
    rows: list[Reservation],
    shares: bool,
    facts: dict[str, Any],
    actor_id: str,
    now: int,
) -> None:
    first, by = rows[0], users.names(session, [actor_id]).get(actor_id)
    said = booking_facts(session, first) | {"by": by} | facts | dates(session, rows)
    event = Event(f"{kind}:{first.id}:{first.version}", kind, first.id, now, said)
    tell(session, for_participants(event) if shares else event, people)
