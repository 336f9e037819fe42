"""Who may do what: one function for HTML, JSON, CSV, iCal and CLI alike. Pure.

A user acts on what is their own; an approver also decides requests; an administrator also acts for others and runs
the machines. A participant of a reservation may call its model, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from controller.said import say

ROLES = ("user", "approver", "admin")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. `via` = "key", "session" or "system"; `key_id` is set for keys."""

    id: str
    name: str
    role: str
    via: str = "key"
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`why` says in words what is missing; empty when allowed."""

    allowed: bool
    why: str = ""

    def __bool__(self) -> bool:
        return self.allowed


_YES = Verdict(True)


class Held(Protocol):
    """What is held by a person (a reservation row will do)."""

    @property
    def holder_id(self) -> str: ...
    @property
    def participants(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Owned:
    """Something that belongs to one person (None: to nobody)."""

    owner_id: str | None


@dataclass(frozen=True, slots=True)
class HolderName:
    """A holder's name, and the setting SLOTSERVE_SHOW_HOLDERS."""

    holder_id: str
    show_holders: str


def may(actor: Actor, action: str, subject: Any = None) -> Verdict:
    """Whether `actor` may do `action` to `subject` (its kind depends on the action, see ACTIONS).

    Raises KeyError for an action that is not listed: a right nobody thought of must not be granted by accident.
    """
    return ACTIONS[action](actor, subject)


def _anybody(actor: Actor, _subject: Any) -> Verdict:
    return _YES


def _admin(actor: Actor, _subject: Any) -> Verdict:
    return _YES if actor.role == "admin" else Verdict(False, say("only an administrator may do this"))


def _decider(actor: Actor, _subject: Any) -> Verdict:
    if actor.role in ("approver", "admin"):
        return _YES
    return Verdict(False, say("only an approver or an administrator may decide requests"))


def _holder(actor: Actor, held: Held) -> Verdict:
    if actor.role == "admin" or actor.id == held.holder_id:
        return _YES
    return Verdict(False, say("this is somebody else's booking; only its holder or an administrator may change it"))


def _book(actor: Actor, owned: Owned) -> Verdict:
    if actor.role == "admin" or owned.owner_id in (None, actor.id):
        return _YES
    return Verdict(False, say("only an administrator may book for somebody else"))


def _details(actor: Actor, held: Held) -> Verdict:
    if actor.role in ("approver", "admin") or actor.id == held.holder_id or actor.id in held.participants:
        return _YES
    return Verdict(False, say("note and participants are for the holder, participants, approvers and administrators"))


def _running(actor: Actor, running: Held | None) -> Verdict:
    if actor.role == "admin" or (running is not None and running.holder_id == actor.id):
        return _YES
    return Verdict(False, say("only an administrator, or the holder while the reservation runs, may do this"))


def _log(actor: Actor, launch_of: Held | None) -> Verdict:
    if actor.role == "admin" or launch_of is None:
        return _YES
    if actor.id == launch_of.holder_id or actor.id in launch_of.participants:
        return _YES
    return Verdict(
        False, say("this output belongs to a reservation; its holder, participants and administrators may read it")
    )


def _own(actor: Actor, owned: Owned) -> Verdict:
    if actor.role == "admin" or owned.owner_id == actor.id:
        return _YES
    return Verdict(False, say("only the owner or an administrator may do this"))


def _holder_name(actor: Actor, who: HolderName) -> Verdict:
    if who.show_holders in ("users", "everyone") or actor.role == "admin" or actor.id == who.holder_id:
        return _YES
    return Verdict(False, say("holders' names are for administrators here"))


ACTIONS: dict[str, Callable[[Actor, Any], Verdict]] = {
    "reservation.create": _book,  # Owned(holder's id)
    "reservation.change": _holder,  # the reservation: edit, extend, end, cancel
    "reservation.decide": _decider,  # approve, reject
    "reservation.maintenance": _admin,
    "reservation.details": _details,  # the reservation: note and participants
    "reservation.holder": _holder_name,  # HolderName
    "channel.see": _anybody,
    "channel.reload": _running,  # the channel's running reservation, or None
    "channel.retry": _running,
    "channel.override": _admin,
    "channel.configure": _admin,
    "channel.log": _log,  # the reservation that the launch was for, or None
    "node.manage": _admin,
    "user.list": _anybody,  # names and roles: needed to name participants
    "user.manage": _admin,
    "preset.create": _anybody,
    "preset.change": _own,  # Owned
    "preset.environment": _own,  # Owned: the values
    "preset.permissioned": _admin,  # flags that run code or reach files
    "key.change": _own,  # Owned
    "feed.change": _own,  # Owned: a calendar's secret address
    "wall.create": _admin,  # the secret address of a wall display
    "settings.see": _admin,
    "audit.see": _admin,
    "usage.see": _own,  # Owned
    "target.change": _own,  # Owned: a webhook or a chat service (None: everybody's), a watch for a free slot
    "message.see": _admin,  # what was sent outside
    "metrics.see": _admin,
    "session.use": _anybody,
}
