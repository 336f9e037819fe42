"""What people can be told, by which ways, and what they get while they have not chosen: plain data and pure functions.

A person's choice is `{kind: [way, …]}` for the kinds where it differs from the defaults; a way or kind that is no
longer known is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.said import say
from controller.words import N_

WAYS = ("in_app", "email", "webhook", "chat")
ALL = WAYS
QUIET = ("in_app", "webhook", "chat")  # not worth a mail unless somebody wants one

GROUPS: dict[str, str] = {
    "decisions": N_("Requests and what others do with your bookings"),
    "times": N_("When your bookings begin and end"),
    "trouble": N_("When something does not work"),
    "others": N_("Other news"),
}
WAY_TITLES: dict[str, str] = {
    "in_app": N_("In SlotServe"),
    "email": N_("E-mail"),
    "webhook": N_("Webhook"),
    "chat": N_("Chat service"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """`roles`: whom it can concern, None = everybody."""

    name: str
    group: str
    title: str
    default: tuple[str, ...] = ALL
    roles: tuple[str, ...] | None = None


_ROWS = (
    Kind("requested", "decisions", N_("A booking waits for your approval"), roles=("approver", "admin")),
    Kind("approved", "decisions", N_("Your request is approved")),
    Kind("rejected", "decisions", N_("Your request is rejected")),
    Kind("expired", "decisions", N_("Nobody decided your request in time")),
    Kind("booked", "decisions", N_("Somebody has booked for you")),
    Kind("changed", "decisions", N_("Somebody has changed your booking")),
    Kind("cancelled", "decisions", N_("Somebody has cancelled your booking")),
    Kind("ended", "decisions", N_("Somebody has ended your booking")),
    Kind("participant", "decisions", N_("Somebody shares a booking with you, or no longer does")),
    Kind("starts_soon", "times", N_("Your booking starts soon")),
    Kind("ready", "times", N_("Your model is ready, or the card is yours"), QUIET),
    Kind("ends_soon", "times", N_("Your booking ends soon"), QUIET),
    Kind("card_in_use", "times", N_("Processes are still on a bare card when its booking ends")),
    Kind("failed", "trouble", N_("A model fails; whether the default answers meanwhile")),
    Kind("recovered", "trouble", N_("A failed model runs again")),
    Kind("blocked", "trouble", N_("Somebody's process keeps a channel from starting its model")),
    Kind("node_lost", "trouble", N_("No contact with a node during or before your booking")),
    Kind("node_back", "trouble", N_("The node is back")),
    Kind("maintenance", "trouble", N_("Maintenance of a node when your booking would begin")),
    Kind("channel_gone", "trouble", N_("A channel that you have booked is no longer there")),
    Kind("slot_free", "others", N_("A slot that you wait for has become free")),
    Kind("delivery_failed", "others", N_("Messages do not get through"), ("in_app",), roles=("admin",)),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}
# What administrators' channels are told unless they say otherwise: what somebody has to look after.
TROUBLE = ("failed", "recovered", "blocked", "card_in_use", "node_lost", "node_back", "channel_gone")
# What is told about every booking to such a channel if it asks for it; the rest is for single persons.
SHARED = ("requested", *TROUBLE)


def ways(choice: Mapping[str, Any] | None, kind: str) -> tuple[str, ...]:
    """The ways by which a person is told of `kind`, in the order of WAYS."""
    if kind not in KINDS:
        return ALL
    said = (choice or {}).get(kind)
    wanted = said if isinstance(said, list) else KINDS[kind].default
    return tuple(way for way in WAYS if way in wanted)


def concerns(kind: Kind, role: str) -> bool:
    """Whether people of this role are ever told of it."""
    return kind.roles is None or role in kind.roles


def chosen(choice: Mapping[str, Any] | None, changes: Mapping[str, list[str] | None]) -> dict[str, list[str]]:
    """The choice after `changes` (None = the default again), without what is the default anyway.

    Raises ValueError naming a kind or way that there is not."""
    after = {kind: list(said) for kind, said in (choice or {}).items() if kind in KINDS and isinstance(said, list)}
    for kind, wanted in changes.items():
        if kind not in KINDS:
            raise ValueError(
                say("%(kind)s: there is no such kind; take one of %(list)s", kind=kind, list=", ".join(KINDS))
            )
        for way in wanted or ():
            if way not in WAYS:
                raise ValueError(
                    say(
                        "%(kind)s: there is no way %(way)s; take one of %(list)s",
                        kind=kind,
                        way=way,
                        list=", ".join(WAYS),
                    )
                )
        if wanted is None:
            after.pop(kind, None)
        else:
            after[kind] = [way for way in WAYS if way in wanted]
    return {kind: said for kind, said in after.items() if tuple(said) != KINDS[kind].default}


def goes_to(kinds: list[Any], kind: str, shared: bool) -> bool:
    """Whether a target with these kinds (empty: all) takes `kind`."""
    if kind == "test":
        return True
    return kind in kinds if kinds else (not shared or kind in SHARED)
