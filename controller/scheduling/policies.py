"""What a channel allows: one shape for REST, command line and console, and the same rules in words for people.

Pure. A policy is stored as the JSON of what somebody has set; what it leaves out is the default. Limits are a person's
on one channel; None = no limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controller.said import fault, say
from controller.scheduling.hints import Hint
from controller.scheduling.types import Millis
from controller.words import N_

MINUTE: Millis = 60_000
HOUR: Millis = 60 * MINUTE
DAY: Millis = 24 * HOUR
WEEK: Millis = 7 * DAY
MONDAY: Millis = 4 * DAY  # the first Monday after 1970-01-01 00:00 UTC
_Number = Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]
_Requests = Annotated[int, Field(ge=1, le=1_000_000)]
_Names = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=200)]
Role = Literal["user", "approver", "admin"]


class Policy(BaseModel):
    """A channel's booking rules. `null` = no limit (numbers) or everybody (allowed_*)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    approval: Literal["never", "always", "over"] = Field(
        "never", description="When a user's booking waits for an approver; `over` = longer than approval_over_hours"
    )
    approval_over_hours: _Number = Field(0, description="For approval `over`")
    max_hours: _Number | None = Field(8, description="Longest booking, in hours")
    min_minutes: _Number | None = Field(None, description="Shortest booking, in minutes")
    max_days_ahead: _Number | None = Field(30, description="How many days ahead a booking may begin")
    max_hours_held: _Number | None = Field(
        None, description="Hours that a person may have pending or approved at a time, from now on"
    )
    max_hours_week: _Number | None = Field(
        None, description="Hours a person and week (Monday 00:00 UTC to Monday), used ones included"
    )
    allowed_users: _Names | None = Field(None, description="Who may book: people by name or id")
    allowed_roles: tuple[Role, ...] | None = Field(
        None, description="Who may book: everybody of these roles; together with allowed_users either is enough"
    )
    exclusive_allowed: bool = Field(True, description="Whether the bare card may be booked")
    requests: bool = Field(False, description="What breaks a limit becomes a request for approval, not a refusal")
    max_concurrent: _Requests | None = Field(None, description="Requests at once; the node's gateway keeps it")
    max_concurrent_per_key: _Requests | None = Field(None, description="Requests at once with one key")

    @property
    def counts_hours(self) -> bool:
        """Whether what a person holds already has to be looked up."""
        return self.max_hours_held is not None or self.max_hours_week is not None

    def admits(self, person: str, role: str) -> bool:
        """Whether a person may book at all."""
        if self.allowed_users is None and self.allowed_roles is None:
            return True
        return person in (self.allowed_users or ()) or role in (self.allowed_roles or ())


class PolicyError(ValueError):
    """A policy cannot be used: `field` is the rule's, `problem` what it may be."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(fault(field, problem))
        self.field, self.problem = field, problem


_EXPECTED = {
    "approval": say("never, always or over (with approval_over_hours)"),
    "approval_over_hours": say("a number of hours, 0 or more"),
    "allowed_users": say("a list of names or ids, or null for everybody"),
    "allowed_roles": say("a list of user, approver, admin, or null for everybody"),
    "exclusive_allowed": say("true or false"),
    "requests": say("true or false"),
    "max_concurrent": say("a whole number of requests, 1 or more, or null for no limit"),
    "max_concurrent_per_key": say("a whole number of requests, 1 or more, or null for no limit"),
}


def policy_of(values: Mapping[str, Any], max_hours: float | None, max_days_ahead: float | None) -> Policy:
    """A channel's policy out of its JSON object; the two arguments are the settings, used where it says nothing (an
    explicit null is "no limit"). Raises PolicyError for an unknown name or an impossible value."""
    return _policy(json.dumps(values, sort_keys=True) if values else "{}", max_hours or None, max_days_ahead or None)


@lru_cache(maxsize=1024)
def _policy(values: str, max_hours: float | None, max_days_ahead: float | None) -> Policy:
    """Most channels of a fleet carry the same few policies."""
    merged = {"max_hours": max_hours, "max_days_ahead": max_days_ahead, **json.loads(values)}
    for name in ("allowed_users", "allowed_roles"):
        if isinstance(merged.get(name), list):
            merged[name] = tuple(merged[name])
    try:
        return Policy.model_validate(merged)
    except ValidationError as err:
        fault = err.errors(include_url=False, include_input=False, include_context=False)[0]
        name = str(fault["loc"][0])[:100]
        if fault["type"] == "extra_forbidden":
            known = ", ".join(Policy.model_fields)
            raise PolicyError(f"policy.{name}", say("no such rule; there are %(list)s", list=known)) from None
        words = _EXPECTED.get(name, say("a number, 0 or more, or null for no limit"))
        raise PolicyError(f"policy.{name}", words) from None


def week_of(instant: Millis) -> Millis:
    """The start of the week (Monday, UTC) that an instant belongs to."""
    return (instant - MONDAY) // WEEK * WEEK + MONDAY


@dataclass(frozen=True, slots=True)
class Taken:
    """A window that a person has on the channel. `holds`: pending or approved; otherwise it is over, up to `end`."""

    start: Millis
    end: Millis
    holds: bool = True


def held_hours(taken: Iterable[Taken], now: Millis) -> float:
    """Hours pending or approved from now on."""
    return sum(max(0, t.end - max(t.start, now)) for t in taken if t.holds) / HOUR


def week_hours(taken: Iterable[Taken], week: Millis) -> float:
    """Hours of the week that begins at `week`, used or still to come."""
    return sum(max(0, min(t.end, week + WEEK) - max(t.start, week)) for t in taken) / HOUR


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a person has of a channel's hours: now, and in the week of an instant. Limits None = no limit."""

    held: float
    held_limit: float | None
    week: float
    week_limit: float | None
    week_start: Millis


def allowance(policy: Policy, taken: Iterable[Taken], now: Millis, at: Millis) -> Allowance:
    """For a booking that would begin at `at`."""
    known, week = tuple(taken), week_of(at)
    return Allowance(
        held_hours(known, now), policy.max_hours_held, week_hours(known, week), policy.max_hours_week, week
    )


def sentences(policy: Policy, left: Allowance | None = None, admitted: bool = True) -> tuple[Hint, ...]:
    """The policy as it is shown before somebody tries; with `left` also what is left to the person."""
    found: list[Hint] = []

    def note(code: str, text: str, **values: str | int | float) -> None:
        found.append(Hint(code, text, values))

    if not admitted:
        note("allowed", N_("only some people may book this channel, and you are not among them"))
    if policy.max_hours is not None:
        note("max_hours", N_("%(hours)s h at most"), hours=number(policy.max_hours))
    if policy.min_minutes is not None:
        note("min_minutes", N_("%(minutes)s min at least"), minutes=number(policy.min_minutes))
    if policy.max_days_ahead is not None:
        note("max_days_ahead", N_("%(days)s days ahead"), days=number(policy.max_days_ahead))
    for code, limit, used, with_left, without in (
        ("max_hours_held", policy.max_hours_held, left.held if left else 0.0,
         N_("%(left)s of %(limit)s h left at a time"), N_("%(limit)s h at a time")),
        ("max_hours_week", policy.max_hours_week, left.week if left else 0.0,
         N_("%(left)s of %(limit)s h left this week"), N_("%(limit)s h a week")),
    ):  # fmt: skip
        if limit is not None:
            text = with_left if left else without
            note(code, text, left=number(max(0.0, limit - used)), limit=number(limit))
    if not policy.exclusive_allowed:
        note("exclusive_allowed", N_("no exclusive bookings"))
    if policy.approval == "always":
        note("approval", N_("every booking needs approval"))
    elif policy.approval == "over":
        note("approval", N_("longer than %(hours)s h needs approval"), hours=number(policy.approval_over_hours))
    if policy.requests:
        note("requests", N_("what is beyond a limit can be asked for"))
    return tuple(found)


def number(value: float) -> str:
    """6, 6.5, 0.25: without digits that mean nothing."""
    return f"{round(value, 2):g}"
