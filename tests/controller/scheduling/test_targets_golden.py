"""The golden cases of the target rules: buffer 60 s, lead 180 s, stop timeout 30 s; D and A load in 60 s, B in 300 s."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.scheduling.plan import timetable
from controller.scheduling.targets import decide
from controller.scheduling.types import ChannelInput, Override, Reservation, Target

NOW = 1_800_000_000_000
HOUR = 3600
D = Target("D", None, "id-d", 60.0)
A = Target("A", None, "id-a", 60.0)
B = Target("B", None, "id-b", 300.0)
C = Target("C", None, "id-c", 90.0)
RUNNING_D = ChannelInput(default=D, current=D, present=frozenset({"id-d"}))


def at(seconds: float) -> int:
    return NOW + round(seconds * 1000)


def booked(target: Target | None, start: float, end: float | None = None, name: str = "r") -> Reservation:
    kind = "exclusive" if target is None else "model"
    return Reservation(name, at(start), at(start + HOUR if end is None else end), kind, target)


def answer(channel: ChannelInput, seconds: float = 0) -> tuple[str | None, str]:
    decision = decide(channel, at(seconds))
    return decision.target and decision.target.model, decision.why


def acted_on(channel: ChannelInput, seconds: float = 0) -> ChannelInput:
    """The input after the decision has been acted on: nothing but the target is there any more."""
    decision = decide(channel, at(seconds))
    present = frozenset({decision.target.identity} if decision.target else ())
    return replace(channel, current=decision.target, present=present, committed=decision.committed)


def test_no_reservations() -> None:
    assert answer(RUNNING_D) == ("D", "default")
    assert decide(RUNNING_D, NOW).until is None


@pytest.mark.parametrize(
    ("target", "start", "expected"),
    [
        (A, 181, ("D", "default")),
        (A, 180, ("A", "preload")),
        (B, 361, ("D", "default")),
        (B, 360, ("B", "preload")),
        (None, 91, ("D", "default")),
        (None, 90, (None, "clearing")),
        (A, 0, ("A", "reserved")),
        (None, 0, (None, "exclusive")),
    ],
)
def test_next_reservation_with_the_default_running(target, start, expected) -> None:
    assert answer(replace(RUNNING_D, reservations=(booked(target, start),))) == expected


def test_a_preload_sticks_when_the_estimate_falls() -> None:
    preloading = acted_on(replace(RUNNING_D, reservations=(booked(B, 360),)))
    faster = replace(preloading, reservations=(booked(replace(B, load_seconds=100.0), 360),))
    assert answer(faster, 1) == ("B", "preload")
    assert answer(replace(faster, committed=None), 1)[0] == "D", "only because it is committed"


@pytest.mark.parametrize(("start", "expected"), [(239, ("A", "short_gap")), (240, ("D", "default"))])
def test_after_a_reservation_that_has_just_ended(start, expected) -> None:
    channel = ChannelInput((booked(A, start),), default=D, current=C, present=frozenset({"id-c"}))
    assert answer(channel) == expected
    drained_still = replace(acted_on(channel), present=frozenset({"id-c"}))
    assert answer(drained_still, 1) == expected, "and one second later, though C is still being drained"


def test_a_default_that_loads_is_not_interrupted() -> None:
    loading = ChannelInput((booked(A, 200),), default=D, current=D, present=frozenset({"id-d"}))
    assert answer(loading) == ("D", "default")


def test_a_default_that_serves_as_fallback_is_kept() -> None:
    fallback = ChannelInput((booked(A, 200),), default=D, current=C, present=frozenset({"id-d"}))
    assert answer(fallback) == ("D", "default")


def test_before_an_exclusive_booking_what_runs_is_kept() -> None:
    slow = replace(D, load_seconds=120.0)
    channel = ChannelInput((booked(None, 200),), default=slow, current=C, present=frozenset({"id-c"}))
    decision = decide(channel, NOW)
    assert (decision.target, decision.why, decision.until) == (C, "short_gap", at(110))
    assert decision.fallback == slow, "C may fail before the card is cleared"
    kept = acted_on(channel)
    assert answer(kept, 109.999) == ("C", "short_gap")
    assert answer(kept, 110) == (None, "clearing")
    assert decide(kept, at(110)).fallback is None


def test_override_unload_is_never_a_short_gap() -> None:
    for start in (400, 200):
        channel = replace(RUNNING_D, override=Override(None, NOW), reservations=(booked(A, start),))
        assert answer(channel) == (None, "override")
        assert decide(channel, NOW).until == at(start - 180)


def test_override_that_runs() -> None:
    channel = ChannelInput((booked(A, 200),), D, Override(B, at(-100)), current=B, present=frozenset({"id-b"}))
    assert answer(channel) == ("B", "override")


def test_override_is_spent_by_a_reservation_that_begins() -> None:
    override = Override(B, NOW, until=at(1800))
    channel = ChannelInput((booked(A, 1200, 1500),), D, override, current=B, present=frozenset({"id-b"}))
    seen = [((s.at - NOW) / 1000, s.target and s.target.model, s.why) for s in timetable(channel, NOW)]
    assert seen == [(0, "B", "override"), (1020, "A", "preload"), (1200, "A", "reserved"), (1500, "D", "default")]
    ended_early = replace(channel, reservations=(), last_begun=at(1200), current=A, present=frozenset({"id-a"}))
    assert answer(ended_early, 1300) == ("D", "default")


def test_override_set_during_a_reservation_takes_over_at_its_end() -> None:
    channel = ChannelInput((booked(A, -60, 600),), D, Override(B, NOW), last_begun=at(-60), current=A)
    assert answer(channel) == ("A", "reserved")
    assert answer(channel, 600) == ("B", "override")


@pytest.mark.parametrize("override", [Override(B, at(10)), Override(None, at(10))])
@pytest.mark.parametrize("target", [A, None])
def test_override_set_in_a_preload_has_no_effect(override, target) -> None:
    preparing = acted_on(replace(RUNNING_D, reservations=(booked(target, 90),)))
    assert answer(replace(preparing, override=override), 10) == answer(preparing, 10)
    in_short_gap = acted_on(ChannelInput((booked(target, 200),), default=replace(D, load_seconds=120), current=C))
    assert in_short_gap.committed == "r"
    assert decide(replace(in_short_gap, override=override), at(10)).target == decide(in_short_gap, at(10)).target
    assert answer(replace(in_short_gap, override=override, last_begun=at(200)), 200 + HOUR) == ("D", "default")


def test_back_to_back_with_the_same_preset_keeps_the_process() -> None:
    same = ChannelInput((booked(A, 0, 600, "r1"), booked(A, 600, 1200, "r2")), default=D, current=A)
    steps = timetable(same, NOW)
    assert [s.target and s.target.identity for s in steps] == ["id-a", "id-a", "id-d"]
    assert [s.running and s.running.id for s in steps] == ["r1", "r2", None]


def test_back_to_back_with_another_preset_restarts() -> None:
    p1, p2 = replace(A, preset="p1", identity="id-1"), replace(A, preset="p2", identity="id-2")
    steps = timetable(ChannelInput((booked(p1, 0, 600, "r1"), booked(p2, 600, 1200, "r2")), current=p1), NOW)
    assert [s.target and s.target.identity for s in steps] == ["id-1", "id-2", None]


def test_no_default() -> None:
    channel = ChannelInput((booked(A, 500),))
    assert answer(channel) == (None, "idle")
    assert decide(channel, NOW).until == at(320)


def test_fallback_is_the_default_where_it_is_another_target() -> None:
    for why, channel in (
        ("reserved", ChannelInput((booked(A, -1),), D, current=A)),
        ("preload", ChannelInput((booked(A, 100),), D, current=A)),
        ("short_gap", ChannelInput((booked(A, 200),), D, current=C)),
    ):
        decision = decide(channel, NOW)
        assert (decision.why, decision.fallback) == (why, D)
        assert decide(replace(channel, default=None), NOW).fallback is None
    assert decide(ChannelInput((booked(D, -1),), D), NOW).fallback is None
    assert decide(ChannelInput((booked(None, -1),), D), NOW).fallback is None
    assert decide(replace(RUNNING_D, override=Override(B, NOW)), NOW).fallback is None


def test_another_reservation_before_it_ends_the_commitment() -> None:
    preloading = acted_on(replace(RUNNING_D, reservations=(booked(B, 360, name="later"),)))
    both = replace(preloading, reservations=(booked(A, 230, 300, "sooner"), booked(B, 360, name="later")))
    decision = decide(both, at(1))
    assert (decision.target, decision.why, decision.committed) == (A, "short_gap", "sooner")


def test_a_lead_that_grows_acts_at_once() -> None:
    channel = replace(RUNNING_D, reservations=(booked(A, 400),))
    assert answer(channel) == ("D", "default")
    assert answer(replace(channel, rules=replace(channel.rules, lead=400))) == ("A", "preload")
