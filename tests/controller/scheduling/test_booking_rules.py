"""The one rule function of booking: what speaks against a booking, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.scheduling.booking_rules import Booking, Conflict, Facts, effective_start, problems, standing
from controller.scheduling.policies import DAY, HOUR, Policy, PolicyError, policy_of

NOW = 1_800_000_000_000
BOOKING = Booking("model", "A", None, NOW + HOUR, NOW + 2 * HOUR)
POLICY = Policy()


def codes(booking=BOOKING, replaces=None, role="user", policy=POLICY, facts=None, now=NOW):
    return [p.code for p in problems(booking, replaces, role, policy, facts or Facts(), now)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, (NOW, True)),
        (NOW, (NOW, False)),
        (NOW - 1, (NOW, True)),
        (NOW - 60_000, (NOW, True)),
        (NOW - 60_001, (NOW - 60_001, False)),
        (NOW + 1, (NOW + 1, False)),
    ],
)
def test_up_to_a_minute_in_the_past_counts_as_now(start, expected) -> None:
    assert effective_start(start, NOW) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"end": NOW + HOUR}, ["bad_window"]),
        ({"end": NOW + HOUR - 1}, ["bad_window"]),
        ({"start": NOW - 60_001}, ["in_the_past"]),
        ({"start": NOW - 60_000}, []),
        ({"start": NOW - HOUR, "end": NOW}, ["in_the_past"]),
        ({"end": NOW + 9 * HOUR}, []),
        ({"end": NOW + 9 * HOUR + 1}, ["too_long"]),
        ({"start": NOW + 30 * DAY, "end": NOW + 30 * DAY + HOUR}, []),
        ({"start": NOW + 30 * DAY + 1, "end": NOW + 30 * DAY + HOUR}, ["too_far_ahead"]),
        ({"model": None}, ["missing"]),
        ({"kind": "exclusive"}, ["not_for_exclusive"]),
        ({"kind": "exclusive", "model": None}, []),
    ],
)
def test_windows_kinds_and_limits(change, expected) -> None:
    assert codes(replace(BOOKING, **change)) == expected


def test_what_was_looked_up() -> None:
    assert codes(facts=Facts(model_known=False)) == ["unknown_model"]
    assert codes(facts=Facts(preset_known=False)) == ["unknown_preset"]
    assert codes(facts=Facts(channel_gone=True)) == ["channel_gone"]
    assert codes(facts=Facts(cordoned=True)) == ["node_cordoned"]
    assert codes(facts=Facts(conflicts=(Conflict("x", NOW, NOW + DAY),))) == ["overlap"]
    for found in problems(BOOKING, None, "admin", POLICY, Facts(False, False, True, True, (Conflict("x", 0, 1),)), NOW):
        assert found.field
        assert found.message
        assert not found.overridable, "not even by an administrator"


def test_limits_are_the_administrators_to_override() -> None:
    policy = Policy(max_hours=0.5, max_days_ahead=0, min_minutes=600, exclusive_allowed=False)
    booking = Booking("exclusive", None, None, NOW + HOUR, NOW + 2 * HOUR)
    wanted = ["too_long", "too_short", "too_far_ahead", "exclusive_not_allowed"]
    assert codes(booking, policy=policy) == wanted
    found = problems(booking, None, "admin", policy, Facts(), NOW)
    assert [p.code for p in found if p.overridable] == wanted
    assert standing(booking, found, "admin", policy) == "approved"


def test_editing() -> None:
    begun = Booking("model", "A", None, NOW - HOUR, NOW + HOUR)
    shorter = replace(begun, end=NOW + 1)
    strict = Policy(max_hours=0.1)
    assert codes(shorter, begun, policy=strict, facts=Facts(model_known=False)) == [], "shortening is always allowed"
    assert codes(replace(begun, end=NOW + 8 * HOUR), begun) == ["too_long"], "growing needs what creating needs"
    assert codes(replace(begun, start=NOW - 30_000), begun) == ["already_begun"]
    assert codes(replace(BOOKING, model="B"), BOOKING, facts=Facts(model_known=False)) == ["unknown_model"]
    assert codes(begun, begun, facts=Facts(model_known=False)) == ["unknown_model"], "an approval checks again"
    assert codes(begun, begun, now=NOW + HOUR) == ["in_the_past"], "and that the window is not over"


@pytest.mark.parametrize(
    ("policy", "role", "expected"),
    [
        (Policy(), "user", "approved"),
        (Policy(approval="always"), "user", "pending"),
        (Policy(approval="always"), "approver", "approved"),
        (Policy(approval="over", approval_over_hours=1), "user", "approved"),
        (Policy(approval="over", approval_over_hours=0.99), "user", "pending"),
        (Policy(max_hours=0.5), "user", "refused"),
        (Policy(max_hours=0.5, requests=True), "user", "pending"),
    ],
)
def test_standing(policy, role, expected) -> None:
    assert standing(BOOKING, problems(BOOKING, None, role, policy, Facts(), NOW), role, policy) == expected


def test_what_cannot_be_requested_is_refused() -> None:
    policy = Policy(requests=True)
    found = problems(BOOKING, None, "user", policy, Facts(model_known=False), NOW)
    assert standing(BOOKING, found, "user", policy) == "refused"


def test_policy_of() -> None:
    assert policy_of({}, 8, 30) == Policy()
    assert policy_of({"max_hours": None, "approval": "always"}, 8, 30) == Policy(max_hours=None, approval="always")
    for bad in (
        {"max_hour": 3},
        {"max_hours": "3"},
        {"max_hours": True},
        {"max_hours": -1},
        {"approval": "maybe"},
        {"requests": 1},
        {"approval_over_hours": None},
        {"max_days_ahead": float("nan")},
        {"max_concurrent": 0},
        {"max_concurrent": 1.5},
        {"max_concurrent_per_key": True},
        {"max_concurrent_per_key": "2"},
    ):
        with pytest.raises(PolicyError, match=f"policy.{next(iter(bad))}"):
            policy_of(bad, 8, 30)
