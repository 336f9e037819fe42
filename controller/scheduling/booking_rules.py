"""The one rule function of booking: create, edit, extend, approve, a drag in the calendar, command line and API.

Pure: whoever calls it has looked up what is known and what is in the way. Windows are half-open, instants integer ms.
The database keeps bookings from overlapping; `overlap` here is the same rule said early and in words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal

from controller.said import Said
from controller.scheduling.policies import (
    DAY,
    HOUR,
    MINUTE,
    WEEK,
    Policy,
    Taken,
    held_hours,
    number,
    week_hours,
    week_of,
)
from controller.scheduling.types import Kind, Millis
from controller.words import N_

COUNTS_AS_NOW: Millis = MINUTE
Standing = Literal["refused", "pending", "approved"]
NOT_WHILE_IT_RUNS = N_(
    "a running booking cannot wait for approval: have an administrator extend it, or ask for the time after it as a "
    "booking of its own"
)


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking as it would be, or as it is (`replaces`). Maintenance is an exclusive booking of the administrators."""

    kind: Kind
    model: str | None
    preset: str | None
    start: Millis
    end: Millis
    maintenance: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """A pending or approved booking that is in the way."""

    id: str
    start: Millis
    end: Millis


@dataclass(frozen=True, slots=True)
class Facts:
    """What was looked up: whether the channel can run (model, preset), whether it takes bookings, what overlaps, who is
    to hold the booking, and what that person has there already (where the policy counts hours).

    `conflicts` and `taken` leave out the booking that is replaced."""

    model_known: bool = True
    preset_known: bool = True
    channel_gone: bool = False
    cordoned: bool = False
    conflicts: tuple[Conflict, ...] = ()
    holder_id: str = ""
    holder_role: str = "user"
    taken: tuple[Taken, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """`field` of the body, a stable `code`, a sentence (said.py), or its message id and its values.
    `overridable`: this actor may do it all the same; `requestable`: an approver could allow it."""

    field: str
    code: str
    text: str
    overridable: bool = False
    requestable: bool = False
    values: Mapping[str, str | int | float] = dataclasses.field(default_factory=dict)

    @property
    def message(self) -> str:
        """The sentence."""
        return self.text if isinstance(self.text, Said) else Said(self.text, self.values)

    def shape(self) -> dict[str, Any]:
        """As answers carry it."""
        return {
            "field": self.field,
            "code": self.code,
            "message": self.message,
            "overridable": self.overridable,
            "requestable": self.requestable,
        }


def effective_start(start: Millis | None, now: Millis) -> tuple[Millis, bool]:
    """(start, whether "now" was put in its place): None is now, and so is up to a minute in the past."""
    if start is None or now - COUNTS_AS_NOW <= start < now:
        return now, True
    return start, False


def problems(
    booking: Booking, replaces: Booking | None, role: str, policy: Policy, facts: Facts, now: Millis
) -> list[Problem]:
    """Everything that speaks against `booking` (its start already through `effective_start`) for an actor of `role`.

    `replaces` is the booking as it is, for an edit, an extension, or an approval (then usually the same). Shortening
    alone is always allowed; whatever grows needs what creating needs.
    """
    found = _window(booking, replaces, now)
    if replaces is not None and booking != replaces and _only_shrinks(booking, replaces):
        return found
    found += _what(booking, facts)
    if not found:
        found += _limits(booking, replaces, role, policy, facts, now)
    if facts.conflicts:
        text = N_("the channel is booked at that time; take another time or another channel")
        found.append(Problem("starts_at", "overlap", text))
    return found


def over_limits(booking: Booking, role: str, policy: Policy, facts: Facts, now: Millis) -> list[Problem]:
    """The limits of the policy alone, as for a new booking: what an approver is shown of a request."""
    return _limits(booking, None, role, policy, facts, now)


def standing(booking: Booking, found: list[Problem], role: str, policy: Policy) -> Standing:
    """What becomes of the booking: refused, a request for approval, or approved at once."""
    against = [p for p in found if not p.overridable]
    if any(not p.requestable for p in against) or (against and not policy.requests):
        return "refused"
    if against:
        return "pending"
    if role in ("approver", "admin") or policy.approval == "never":
        return "approved"
    short = booking.end - booking.start <= policy.approval_over_hours * HOUR
    return "approved" if policy.approval == "over" and short else "pending"


def _window(booking: Booking, replaces: Booking | None, now: Millis) -> list[Problem]:
    if booking.end <= booking.start:
        return [Problem("ends_at", "bad_window", N_("ends_at must be later than starts_at"))]
    if booking.end <= now:
        return [Problem("ends_at", "in_the_past", N_("this time is already over"))]
    moved = replaces is None or booking.start != replaces.start
    if moved and booking.start < now - COUNTS_AS_NOW:
        return [Problem("starts_at", "in_the_past", N_("starts_at is in the past; leave it out to start now"))]
    if moved and replaces is not None and replaces.start <= now:
        text = N_("this booking has begun; only its end can be changed")
        return [Problem("starts_at", "already_begun", text)]
    return []


def _only_shrinks(booking: Booking, replaces: Booking) -> bool:
    same = (booking.kind, booking.model, booking.preset) == (replaces.kind, replaces.model, replaces.preset)
    return same and replaces.start <= booking.start and booking.end <= replaces.end


def _what(booking: Booking, facts: Facts) -> list[Problem]:
    found = []
    if facts.channel_gone:
        found.append(Problem("channel", "channel_gone", N_("the node no longer declares this channel")))
    elif facts.cordoned and not booking.maintenance:
        found.append(Problem("channel", "node_cordoned", N_("the node takes no new bookings for now")))
    if booking.maintenance and booking.kind != "exclusive":
        found.append(
            Problem("kind", "maintenance_is_exclusive", N_("maintenance takes the whole card: kind exclusive"))
        )
    elif booking.kind == "exclusive":
        if booking.model is not None or booking.preset is not None:
            text = N_("an exclusive booking loads nothing; leave model out")
            found.append(Problem("model", "not_for_exclusive", text))
    elif not booking.model:
        found.append(Problem("model", "missing", N_("name the model to be loaded, or book kind exclusive")))
    elif not facts.model_known:
        text = N_("no model %(model)s that this channel can load; see the list of models")
        found.append(Problem("model", "unknown_model", text, values={"model": repr(booking.model)}))
    elif not facts.preset_known:
        values = {"preset": repr(booking.preset), "model": repr(booking.model)}
        text = N_("no preset %(preset)s of %(model)s that this channel can run")
        found.append(Problem("preset", "unknown_preset", text, values=values))
    return found


def _limits(
    booking: Booking, replaces: Booking | None, role: str, policy: Policy, facts: Facts, now: Millis
) -> list[Problem]:
    found: list[Problem] = []
    if booking.maintenance:
        return found  # the administrators' own: no limit is meant for it
    admin = role == "admin"

    def limit(field: str, code: str, text: str, **values: str) -> None:
        found.append(Problem(field, code, text, overridable=admin, requestable=True, values=values))

    if not policy.admits(facts.holder_id, facts.holder_role):
        text = N_("only some people may book this channel; ask an administrator to be one of them")
        found.append(Problem("channel", "not_admitted", text, overridable=admin))
    length = booking.end - booking.start
    if policy.max_hours is not None and length > policy.max_hours * HOUR:
        limit("ends_at", "too_long", N_("%(hours)s h at most on this channel"), hours=number(policy.max_hours))
    if policy.min_minutes is not None and length < policy.min_minutes * MINUTE:
        minutes = number(policy.min_minutes)
        limit("ends_at", "too_short", N_("%(minutes)s min at least on this channel"), minutes=minutes)
    if policy.max_days_ahead is not None and booking.start > now + policy.max_days_ahead * DAY:
        text = N_("%(days)s days ahead at most on this channel")
        limit("starts_at", "too_far_ahead", text, days=number(policy.max_days_ahead))
    becomes_exclusive = booking.kind == "exclusive" and (replaces is None or replaces.kind != "exclusive")
    if becomes_exclusive and not policy.exclusive_allowed:
        limit("kind", "exclusive_not_allowed", N_("this channel takes no exclusive bookings"))
    if policy.max_hours_held is not None:
        held, more = held_hours(facts.taken, now), (booking.end - max(booking.start, now)) / HOUR
        if held + more > policy.max_hours_held:
            text = N_(
                "%(limit)s h pending or booked at a time are the most on this channel; %(left)s h are left, this takes "
                "%(more)s h"
            )
            left, most = max(0.0, policy.max_hours_held - held), number(policy.max_hours_held)
            limit("ends_at", "too_many_hours_held", text, limit=most, left=number(left), more=number(more))
    if policy.max_hours_week is not None:
        _week(booking, policy.max_hours_week, facts, limit)
    return found


def _week(booking: Booking, most: float, facts: Facts, limit: Callable[..., None]) -> None:
    """The first week that the booking would fill beyond its hours."""
    week = week_of(booking.start)
    while week < booking.end:
        used, more = week_hours(facts.taken, week), week_hours((Taken(booking.start, booking.end),), week)
        if used + more > most:
            text = N_(
                "%(limit)s h a week are the most on this channel; %(left)s h are left of the week from %(monday)s, this "
                "takes %(more)s h"
            )
            monday = date(1970, 1, 1) + timedelta(milliseconds=week)
            left = number(max(0.0, most - used))
            limit(
                "ends_at",
                "too_many_hours_week",
                text,
                limit=number(most),
                left=left,
                more=number(more),
                monday=f"{monday}",
            )
            return
        week += WEEK
