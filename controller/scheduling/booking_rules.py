"""The one rule function of booking: create, edit, extend, approve, a drag in the calendar, command line and API.

Pure: whoever calls it has looked up what is known and what is in the way. Windows are half-open, instants integer ms.
The database keeps bookings from overlapping; `overlap` here is the same rule said early and in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from controller.scheduling.types import Kind, Millis

COUNTS_AS_NOW: Millis = 60_000
MINUTE: Millis = 60_000
HOUR: Millis = 60 * MINUTE
DAY: Millis = 24 * HOUR
Standing = Literal["refused", "pending", "approved"]


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking as it would be, or as it is (`replaces`)."""

    kind: Kind
    model: str | None
    preset: str | None
    start: Millis
    end: Millis


@dataclass(frozen=True, slots=True)
class Conflict:
    """A pending or approved booking that is in the way."""

    id: str
    start: Millis
    end: Millis


@dataclass(frozen=True, slots=True)
class Facts:
    """What was looked up: whether the channel can run (model, preset), whether it takes bookings, what overlaps.

    `conflicts` leaves out the booking that is replaced."""

    model_known: bool = True
    preset_known: bool = True
    channel_gone: bool = False
    cordoned: bool = False
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What a channel allows. None = no limit. `approval`: when a user's booking waits for an approver (`over` = longer
    than `approval_over_hours`). `requests`: what breaks a limit may be asked for instead of being refused."""

    approval: Literal["never", "always", "over"] = "never"
    approval_over_hours: float = 0
    max_hours: float | None = 8
    min_minutes: float | None = None
    max_days_ahead: float | None = 30
    exclusive_allowed: bool = True
    requests: bool = False
    max_concurrent: int | None = None  # requests at once; the gateways' business, as is the next
    max_concurrent_per_key: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """`field` of the body, a stable `code`, a sentence. `overridable`: this actor may do it all the same;
    `requestable`: an approver could allow it."""

    field: str
    code: str
    message: str
    overridable: bool = False
    requestable: bool = False


class PolicyError(ValueError):
    """A policy cannot be used; the message names the field and what it may be."""


def policy_of(values: Mapping[str, Any], max_hours: float | None, max_days_ahead: float | None) -> Policy:
    """A channel's policy out of its JSON object; the two arguments are the settings, used where it says nothing (an
    explicit null is "no limit"). Raises PolicyError for an unknown name or an impossible value."""
    merged: dict[str, Any] = {"max_hours": max_hours or None, "max_days_ahead": max_days_ahead or None, **values}
    for name, value in merged.items():
        if name not in Policy.__dataclass_fields__:
            raise PolicyError(f"policy.{name}: no such rule; there are {', '.join(Policy.__dataclass_fields__)}")
        if name == "approval":
            if value not in ("never", "always", "over"):
                raise PolicyError("policy.approval: never, always or over (with approval_over_hours)")
        elif name in ("exclusive_allowed", "requests"):
            if not isinstance(value, bool):
                raise PolicyError(f"policy.{name}: true or false")
        elif value is None:
            if name == "approval_over_hours":
                raise PolicyError("policy.approval_over_hours: a number of hours, 0 or more")
        elif name in ("max_concurrent", "max_concurrent_per_key"):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
                raise PolicyError(f"policy.{name}: a whole number of requests, 1 or more, or null for no limit")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise PolicyError(f"policy.{name}: a number, 0 or more, or null for no limit")
    return Policy(**merged)


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
        found += _limits(booking, replaces, role, policy, now)
    found += [
        Problem("starts_at", "overlap", "the channel is booked at that time; take another time or another channel")
        for _ in facts.conflicts[:1]
    ]
    return found


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
        return [Problem("ends_at", "bad_window", "ends_at must be later than starts_at")]
    if booking.end <= now:
        return [Problem("ends_at", "in_the_past", "this time is already over")]
    moved = replaces is None or booking.start != replaces.start
    if moved and booking.start < now - COUNTS_AS_NOW:
        return [Problem("starts_at", "in_the_past", "starts_at is in the past; leave it out to start now")]
    if moved and replaces is not None and replaces.start <= now:
        return [Problem("starts_at", "already_begun", "this booking has begun; only its end can be changed")]
    return []


def _only_shrinks(booking: Booking, replaces: Booking) -> bool:
    same = (booking.kind, booking.model, booking.preset) == (replaces.kind, replaces.model, replaces.preset)
    return same and replaces.start <= booking.start and booking.end <= replaces.end


def _what(booking: Booking, facts: Facts) -> list[Problem]:
    found = []
    if facts.channel_gone:
        found.append(Problem("channel", "channel_gone", "the node no longer declares this channel"))
    elif facts.cordoned:
        found.append(Problem("channel", "node_cordoned", "the node takes no new bookings for now"))
    if booking.kind == "exclusive":
        if booking.model is not None or booking.preset is not None:
            found.append(Problem("model", "not_for_exclusive", "an exclusive booking loads nothing; leave model out"))
    elif not booking.model:
        found.append(Problem("model", "missing", "name the model to be loaded, or book kind exclusive"))
    elif not facts.model_known:
        message = f"no model {booking.model!r} that this channel can load; see the list of models"
        found.append(Problem("model", "unknown_model", message))
    elif not facts.preset_known:
        message = f"no preset {booking.preset!r} of {booking.model!r} that this channel can run"
        found.append(Problem("preset", "unknown_preset", message))
    return found


def _limits(booking: Booking, replaces: Booking | None, role: str, policy: Policy, now: Millis) -> list[Problem]:
    found = []
    admin = role == "admin"

    def limit(field: str, code: str, message: str) -> None:
        found.append(Problem(field, code, message, overridable=admin, requestable=True))

    length = booking.end - booking.start
    if policy.max_hours is not None and length > policy.max_hours * HOUR:
        limit("ends_at", "too_long", f"{policy.max_hours:g} h at most on this channel")
    if policy.min_minutes is not None and length < policy.min_minutes * MINUTE:
        limit("ends_at", "too_short", f"{policy.min_minutes:g} min at least on this channel")
    if policy.max_days_ahead is not None and booking.start > now + policy.max_days_ahead * DAY:
        limit("starts_at", "too_far_ahead", f"{policy.max_days_ahead:g} days ahead at most on this channel")
    becomes_exclusive = booking.kind == "exclusive" and (replaces is None or replaces.kind != "exclusive")
    if becomes_exclusive and not policy.exclusive_allowed:
        limit("kind", "exclusive_not_allowed", "this channel takes no exclusive bookings")
    return found
