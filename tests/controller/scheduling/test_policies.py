"""Policies: one shape, hours a person holds, who may book, and the words for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.booking_rules import Booking, Facts, over_limits, problems, standing
from controller.scheduling.policies import (
    DAY,
    HOUR,
    WEEK,
    Policy,
    Taken,
    allowance,
    held_hours,
    policy_of,
    sentences,
    week_hours,
    week_of,
)

NOW = 1_800_000_000_000  # Friday 2027-01-15 08:00 UTC
MONDAY = NOW - 4 * DAY - 8 * HOUR
BOOKING = Booking("model", "A", None, NOW + HOUR, NOW + 3 * HOUR)


def codes(policy, booking=BOOKING, replaces=None, role="user", **facts) -> list[str]:
    return [p.code for p in problems(booking, replaces, role, policy, Facts(**facts), NOW)]


def test_weeks_begin_on_monday_in_utc() -> None:
    assert week_of(NOW) == MONDAY
    assert week_of(MONDAY) == MONDAY
    assert week_of(MONDAY - 1) == MONDAY - WEEK
    assert week_of(0) == -3 * DAY, "1970-01-01 was a Thursday"


@pytest.mark.parametrize(
    ("limit", "taken", "expected"),
    [
        (2, (), []),
        (1.99, (), ["too_many_hours_held"]),
        (4, (Taken(NOW + DAY, NOW + DAY + 2 * HOUR),), []),
        (4, (Taken(NOW + DAY, NOW + DAY + 2 * HOUR + 1),), ["too_many_hours_held"]),
        (4, (Taken(NOW - DAY, NOW + 2 * HOUR),), []),  # of a running one, what is left
        (4, (Taken(NOW - DAY, NOW, holds=False),), []),  # what is over is not held
    ],
)
def test_hours_at_a_time(limit, taken, expected) -> None:
    assert codes(Policy(max_hours_held=limit), taken=taken) == expected


@pytest.mark.parametrize(
    ("limit", "taken", "expected"),
    [
        (2, (), []),
        (1.5, (), ["too_many_hours_week"]),
        (4, (Taken(MONDAY, MONDAY + 2 * HOUR, holds=False),), []),
        (3.9, (Taken(MONDAY, MONDAY + 2 * HOUR, holds=False),), ["too_many_hours_week"]),  # used hours count
        (4, (Taken(MONDAY - 9 * HOUR, MONDAY + 2 * HOUR),), []),  # of it only what lies in the week
        (2, (Taken(MONDAY - 9 * HOUR, MONDAY, holds=False),), []),
    ],
)
def test_hours_a_week(limit, taken, expected) -> None:
    assert codes(Policy(max_hours_week=limit), taken=taken) == expected


def test_a_booking_over_midnight_on_sunday_counts_in_both_weeks() -> None:
    night = replace(BOOKING, start=MONDAY + WEEK - HOUR, end=MONDAY + WEEK + 5 * HOUR)
    assert codes(Policy(max_hours_week=5), night) == []
    assert codes(Policy(max_hours_week=4.5), night) == ["too_many_hours_week"]
    next_week = (Taken(MONDAY + WEEK + 9 * HOUR, MONDAY + WEEK + 10 * HOUR),)
    found = problems(night, None, "user", Policy(max_hours_week=5), Facts(taken=next_week), NOW)
    assert found[0].message == (
        "5 h a week are the most on this channel; 4 h are left of the week from 2027-01-18, this takes 5 h"
    )


def test_who_may_book() -> None:
    policy = Policy(allowed_users=("u1",), allowed_roles=("approver",), requests=True)
    assert codes(policy, holder_id="u1") == []
    assert codes(policy, holder_id="u2", holder_role="approver") == []
    assert codes(policy, holder_id="u2", holder_role="user") == ["not_admitted"]
    found = problems(BOOKING, None, "user", policy, Facts(holder_id="u2"), NOW)
    assert standing(BOOKING, found, "user", policy) == "refused", "nothing to be asked for"
    found = problems(BOOKING, None, "admin", policy, Facts(holder_id="u2"), NOW)
    assert standing(BOOKING, found, "admin", policy) == "approved", "an administrator may"


def test_maintenance_knows_no_limits_but_takes_the_whole_card() -> None:
    policy = Policy(max_hours=1, exclusive_allowed=False, allowed_roles=(), max_days_ahead=0)
    booking = Booking("exclusive", None, None, NOW + HOUR, NOW + DAY, maintenance=True)
    assert codes(policy, booking, role="admin", cordoned=True) == []
    assert codes(policy, replace(booking, kind="model", model="A"), role="admin") == ["maintenance_is_exclusive"]


def test_what_an_approver_is_shown() -> None:
    long = replace(BOOKING, end=NOW + 11 * HOUR)
    said = [p.message for p in over_limits(long, "user", Policy(max_hours_held=4), Facts(), NOW)]
    assert said == [
        "8 h at most on this channel",
        "4 h pending or booked at a time are the most on this channel; 4 h are left, this takes 10 h",
    ]


def test_shown_before_somebody_tries() -> None:
    policy = Policy(max_days_ahead=14, max_hours_week=20, min_minutes=30, approval="over", approval_over_hours=4)
    left = allowance(policy, (Taken(MONDAY, MONDAY + 14 * HOUR, False),), NOW, NOW + HOUR)
    assert [str(h) for h in sentences(policy, left)] == [
        "8 h at most", "30 min at least", "14 days ahead", "6 of 20 h left this week", "longer than 4 h needs approval",
    ]  # fmt: skip
    assert [str(h) for h in sentences(Policy(max_hours=None, max_days_ahead=None))] == []
    strict = Policy(max_hours_held=6, exclusive_allowed=False, requests=True, approval="always")
    assert [h.code for h in sentences(strict, None, admitted=False)] == [
        "allowed", "max_hours", "max_days_ahead", "max_hours_held", "exclusive_allowed", "approval", "requests",
    ]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(-30, 30), st.integers(1, 200)), max_size=6),
    st.integers(-1, 30),
    st.integers(1, 300),
    st.floats(0, 400),
    st.floats(0, 168),
)
def test_nobody_gets_beyond_the_hours(rows, start, length, held, week) -> None:
    """What is approved never lifts anybody above a limit, whatever they had."""
    taken = tuple(Taken(NOW + s * DAY, NOW + s * DAY + n * HOUR) for s, n in rows)
    booking = replace(BOOKING, start=NOW + start * HOUR, end=NOW + start * HOUR + length * HOUR)
    policy = Policy(max_hours=None, max_days_ahead=None, max_hours_held=held, max_hours_week=week)
    found = problems(booking, None, "user", policy, Facts(taken=taken), NOW)
    if standing(booking, found, "user", policy) == "approved":
        after = (*taken, Taken(booking.start, booking.end))
        assert held_hours(after, NOW) <= held + 1e-9
        monday = week_of(booking.start)
        while monday < booking.end:
            assert week_hours(after, monday) <= week + 1e-9
            monday += WEEK


def test_lists_out_of_json() -> None:
    policy = policy_of({"allowed_users": ["a"], "allowed_roles": ["admin"]}, 8, 30)
    assert (policy.allowed_users, policy.allowed_roles) == (("a",), ("admin",))
