"""Each threshold of the rules to the millisecond, and one second either side of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.scheduling.targets import decide
from controller.scheduling.types import ChannelInput, Override, Reservation, Rules, Target

NOW = 1_800_000_000_000
D = Target("D", None, "d", 60.0)
EITHER_SIDE = (-1000, -1, 0, 1, 1000)


def booking(target: Target | None, start: int, end: int | None = None) -> Reservation:
    return Reservation("r", start, end or start + 3_600_000, "model" if target else "exclusive", target)


@pytest.mark.parametrize("off", EITHER_SIDE)
@pytest.mark.parametrize(
    ("load", "rules", "lead_ms"),
    [
        (60.0, Rules(), 180_000),  # the channel's minimum
        (120.0, Rules(), 180_000),  # both the same
        (120.001, Rules(), 180_001),
        (300.0, Rules(), 360_000),
        (0.1, Rules(buffer=0.2, lead=0), 300),  # not 0.30000000000000004
        (15.0004, Rules(lead=0), 75_000),  # a fraction of a millisecond earlier is not late enough
        (0.0, Rules(buffer=0, lead=0), 0),
    ],
)
def test_preload_begins_at_the_lead(load, rules, lead_ms, off) -> None:
    target = Target("A", None, "a", load)
    start = NOW + lead_ms - off
    channel = ChannelInput((booking(target, start),), D, current=D, rules=rules)
    decision = decide(channel, NOW)
    if off >= 0:
        assert decision.target == target
        assert decision.why == ("preload" if start > NOW else "reserved")
    else:
        assert (decision.target, decision.why) == (D, "default")
        assert decision.until == NOW - off


@pytest.mark.parametrize("off", EITHER_SIDE)
@pytest.mark.parametrize("rules", [Rules(), Rules(stop_timeout=5, buffer=10, lead=9999)])
def test_clearing_begins_at_stop_timeout_and_buffer(rules, off) -> None:
    start = NOW + round((rules.stop_timeout + rules.buffer) * 1000) - off
    decision = decide(ChannelInput((booking(None, start),), D, current=D, rules=rules), NOW)
    assert decision.why == ("clearing" if off >= 0 else "default")
    assert decision.until == (start if off >= 0 else NOW - off)


@pytest.mark.parametrize("off", EITHER_SIDE)
@pytest.mark.parametrize(
    ("idle", "following", "needed_ms"),
    [(60.0, 60.0, 240_000), (10.0, 70.0005, 200_001), (100.1, 200.2, 420_300)],
)
@pytest.mark.parametrize("by_override", [False, True])
def test_gap_is_short_below_both_loads_and_two_buffers(idle, following, needed_ms, off, by_override) -> None:
    choice, target = Target("I", None, "i", idle), Target("A", None, "a", following)
    channel = ChannelInput(
        (booking(target, NOW + needed_ms + off),),
        None if by_override else choice,
        Override(choice, NOW) if by_override else None,
        current=Target("C", None, "c"),
    )
    decision = decide(channel, NOW)
    if off >= 0:
        assert (decision.target, decision.why) == (choice, "override" if by_override else "default")
    else:
        assert (decision.target, decision.why, decision.committed) == (target, "short_gap", "r")
    there = replace(channel, present=frozenset({"i"}))
    assert decide(there, NOW).target == choice, "what is there already is not loaded"


@pytest.mark.parametrize("off", EITHER_SIDE)
def test_reservation_is_half_open(off) -> None:
    target = Target("A", None, "a", 60.0)
    begins = ChannelInput((booking(target, NOW - off),), D, current=D)
    assert decide(begins, NOW).why == ("reserved" if off >= 0 else "preload")
    ends = ChannelInput((booking(target, NOW - 10_000, NOW - off),), D, current=target)
    assert decide(ends, NOW).why == ("default" if off >= 0 else "reserved")
    assert decide(ends, NOW).until == (None if off >= 0 else NOW - off)


@pytest.mark.parametrize("off", EITHER_SIDE)
def test_override_ends_at_its_end(off) -> None:
    other = Target("O", None, "o", 60.0)
    decision = decide(ChannelInput((), D, Override(other, NOW - 9999, until=NOW - off), current=other), NOW)
    assert decision.why == ("default" if off >= 0 else "override")
    assert decision.until == (None if off >= 0 else NOW - off)


@pytest.mark.parametrize(("begun", "why"), [(-1, "override"), (0, "override"), (1, "default")])
def test_override_is_spent_by_what_began_after_it_was_set(begun, why) -> None:
    other = Target("O", None, "o", 60.0)
    channel = ChannelInput((), D, Override(other, NOW - 5000), last_begun=NOW - 5000 + begun, current=other)
    assert decide(channel, NOW).why == why


def test_why_of_what_was_chosen_follows_the_rule_that_holds_now() -> None:
    """Chosen by rule 2; the estimate falls; the gap shrinks until rule 3 holds, which is announced; then rule 2."""
    start = NOW + 359_000
    target = Target("B", None, "b", 100.0)
    channel = ChannelInput((booking(target, start),), D, committed="r", current=target, present=frozenset({"b"}))
    first = decide(channel, NOW)
    assert (first.target, first.why, first.until) == (target, "preload", start - 280_000 + 1)
    assert first.until is not None
    assert decide(channel, first.until - 1).why == "preload"
    second = decide(channel, first.until)
    assert (second.target, second.why, second.until) == (target, "short_gap", start - 180_000)
    assert decide(channel, start - 180_000).why == "preload"


def test_clearing_is_not_undone_by_a_shorter_stop_timeout() -> None:
    channel = ChannelInput((booking(None, NOW + 90_000),), D, current=D, present=frozenset({"d"}))
    assert decide(channel, NOW).why == "clearing"
    cleared = replace(channel, current=None, present=frozenset(), committed="r", rules=Rules(stop_timeout=1))
    assert decide(cleared, NOW + 1).target is None
