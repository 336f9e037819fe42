"""The people of a booking: for whom it is, and who may call as well. Named by id or name; an unknown one is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.booking.refusals import unfit
from controller.booking.view import Holder
from controller.errors import Forbidden
from controller.rights import Actor, Owned, may
from controller.said import say
from controller.store import users


def need(actor: Actor, action: str, subject: Any = None) -> None:
    """Raises Forbidden with the reason unless the actor may."""
    verdict = may(actor, action, subject)
    if not verdict:
        raise Forbidden(verdict.why)


def holder_of(session: Any, actor: Actor, holder: str | None) -> Holder:
    """For whom a booking is (None: the actor). Raises Invalid, Forbidden."""
    if holder is None:
        return Holder(actor.id, actor.role)
    user = users.find(session, holder)
    if user is None:
        raise unfit("holder", "unknown_person", say("there is nobody with the id or name %(name)s", name=repr(holder)))
    need(actor, "reservation.create", Owned(user.id))
    if user.disabled_at is not None:
        raise unfit("holder", "holder_disabled", say("the account of %(name)s is disabled", name=user.name))
    return Holder(user.id, user.role)


def participants(session: Any, wanted: Sequence[str], holder: str) -> list[str]:
    """Their ids, each once, without the holder. Raises Invalid naming the one that nobody knows."""
    if not wanted:
        return []
    known = users.find_all(session, wanted)
    ids: list[str] = []
    for index, one in enumerate(wanted):
        user = known.get(one)
        if user is None:
            message = say("there is nobody with the id or name %(name)s", name=repr(one))
            raise unfit(f"participants.{index}", "unknown_person", message)
        if user.disabled_at is not None:
            message = say("the account of %(name)s is disabled", name=user.name)
            raise unfit(f"participants.{index}", "person_disabled", message)
        if user.id != holder and user.id not in ids:
            ids.append(user.id)
    return ids


def check(session: Any, actor: Actor, holder: str | None, wanted: Sequence[str]) -> Holder:
    """Whether the people of a wish exist and may be named. Raises Invalid, Forbidden."""
    who = holder_of(session, actor, holder)
    participants(session, wanted, who.id)
    return who
