"""The one way to tell people: in the transaction of the change itself, once an event a person, by the ways they chose.

Writes the in-app notice and a message for every way outside; a sender takes those after the commit. Nothing is sent
here, so no booking waits for a mail server. The transaction is a write one: writes come one after the other on both
databases, so that looking whether somebody was told and then telling them is no race.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.notify import wording
from controller.notify.kinds import goes_to, ways
from controller.store import notifications, outbox, targets
from controller.store.tables import Notification, Outbox, User


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. `id` makes it once; `subject` is "node/channel", a node or a reservation's id; `facts` are what the
    words are made of (JSON; instants in ms), see wording.py."""

    id: str
    kind: str
    subject: str
    at: int
    facts: dict[str, Any] = field(default_factory=dict)


def for_participants(event: Event) -> Event:
    """The same event in the words of those who share the booking (texts_participants.py): theirs once, as the holder's."""
    facts = {**event.facts, "participant": True, "about_holder": True}
    return replace(event, id=f"with:{event.id}"[:96], facts=facts)


def tell(session: Session, event: Event, user_ids: Iterable[str | None], *, shared: bool = False) -> list[str]:
    """Tells those who have not been told yet; answers who they are. `shared`: administrators' channels as well."""
    wanted = list(dict.fromkeys(u for u in user_ids if u))
    told = notifications.told(session, event.id) if wanted else set()
    fresh = [u for u in wanted if u not in told]
    people = {u.id: u for u in session.scalars(select(User).where(User.id.in_(fresh)))} if fresh else {}
    text = text_of(event.kind, event.facts)
    session.add_all(
        Notification(
            event_id=event.id,
            user_id=user.id,
            kind=event.kind,
            subject=event.subject,
            text=text,
            at=event.at,
            facts=event.facts,
            shown="in_app" in ways(user.notify, event.kind),
        )
        for user in people.values()
    )
    _outside(session, event, {i: u for i, u in people.items() if u.disabled_at is None}, shared)
    return list(people)


def text_of(kind: str, facts: dict[str, Any]) -> str:
    """A notice as one English text with its times in UTC: what scripts read, and the command line makes local."""
    said = wording.render(kind, facts)
    rest = said.sentence()
    return rest if rest == said.title else f"{said.title}. {rest}"


def _outside(session: Session, event: Event, people: dict[str, User], shared: bool) -> None:
    """A message for each person's mailbox and each target that takes this kind."""
    places: list[tuple[str | None, str, str]] = [
        (user.id, "email", user.id)
        for user in people.values()
        if user.email and "email" in ways(user.notify, event.kind)
    ]
    if people or shared:
        for target in targets.listening(session, people, shared):
            owner = people.get(target.user_id) if target.user_id else None
            if owner is not None and target.way not in ways(owner.notify, event.kind):
                continue
            if goes_to(target.kinds, event.kind, target.user_id is None):
                places.append((target.user_id, target.way, target.id))
    if not places:
        return
    known = outbox.known(session, event.id)
    session.add_all(
        Outbox(
            event_id=event.id,
            user_id=user_id,
            kind=event.kind,
            way=way,
            address=address,
            payload={"subject": event.subject, "at": event.at, "facts": event.facts},
            created_at=event.at,
            due_at=event.at,
        )
        for user_id, way, address in places
        if (way, address) not in known
    )
