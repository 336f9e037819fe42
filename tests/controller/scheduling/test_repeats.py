"""Repeated bookings: the wall clock through 23 h and 25 h days, the hour that is missing and the one that comes twice."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from controller.scheduling.repeats import MOST, RepeatError, Rule, windows

BERLIN = ZoneInfo("Europe/Berlin")  # 2027: forward on 28 March at 2:00, back on 31 October at 3:00
ZONES = [
    ZoneInfo(z)
    for z in ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "Africa/Casablanca")
]
HOUR, DAY = 3_600_000, 86_400_000


def at(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def wall(instant: int, zone: ZoneInfo = BERLIN) -> str:
    return datetime.fromtimestamp(instant / 1000, zone).isoformat(timespec="minutes")[:-6]


def said(start: str, end: str, **rule) -> list[tuple[str, str, float]]:
    rule = {"every": "day", "zone": BERLIN, **rule}
    found = windows(at(start), at(end), Rule(**rule))
    return [(wall(w.start), wall(w.end), (w.end - w.start) / HOUR) for w in found]


def test_nine_to_five_stays_nine_to_five() -> None:
    assert said("2027-03-27T09:00", "2027-03-27T17:00", count=3) == [
        (f"2027-03-{day}T09:00", f"2027-03-{day}T17:00", 8) for day in (27, 28, 29)
    ]


@pytest.mark.parametrize(("day", "hours"), [("2027-03-27", 7), ("2027-10-30", 9), ("2027-06-01", 8)])
def test_a_night_is_as_long_as_the_clocks_make_it(day: str, hours: int) -> None:
    start = date.fromisoformat(day) - timedelta(days=1)
    found = said(f"{start}T22:00", f"{start + timedelta(days=1)}T06:00", count=2)
    assert [h for *_, h in found] == [8, hours]
    assert {(s[11:], e[11:]) for s, e, _ in found} == {("22:00", "06:00")}


@pytest.mark.parametrize(("day", "hours"), [("2027-03-27", 23), ("2027-10-30", 25)])
def test_a_whole_day_of_23_or_25_hours(day: str, hours: int) -> None:
    start = date.fromisoformat(day)
    found = said(f"{start}T00:00", f"{start + timedelta(days=1)}T00:00", count=3)
    assert [h for *_, h in found] == [24, hours, 24]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(found)), "back to back, nothing between"


def test_a_start_that_is_missing_comes_as_much_later_and_keeps_its_length() -> None:
    found = windows(at("2027-03-27T02:30"), at("2027-03-27T03:00"), Rule("day", BERLIN, count=3))
    assert [(wall(w.start)[11:], wall(w.end)[11:], w.moved) for w in found] == [
        ("02:30", "03:00", False), ("03:30", "04:00", True), ("02:30", "03:00", False),
    ]  # fmt: skip
    assert said("2027-03-27T01:30", "2027-03-27T02:30", count=2)[1] == ("2027-03-28T01:30", "2027-03-28T03:30", 1)


def test_a_time_that_comes_twice_is_its_first_coming() -> None:
    found = windows(at("2027-10-30T02:30"), at("2027-10-30T02:45"), Rule("day", BERLIN, count=2))
    assert [(w.end - w.start) // 60_000 for w in found] == [15, 15]
    assert found[1].start == int(datetime(2027, 10, 31, 0, 30, tzinfo=UTC).timestamp() * 1000)


def test_the_first_window_is_the_one_that_was_named_also_over_the_hour_that_comes_twice() -> None:
    start = at("2027-10-31T02:45")  # its first coming, and half an hour later the clock shows 2:15
    found = windows(start, start + HOUR // 2, Rule("day", BERLIN, count=2))
    assert (found[0].start, found[0].end) == (start, start + HOUR // 2)
    assert wall(found[1].start) == "2027-11-01T02:45"
    assert found[1].end - found[1].start == HOUR // 2


def test_days_of_the_week_and_ends() -> None:
    mondays = {"every": "week", "days": frozenset((0, 2))}
    found = said("2027-01-05T09:00", "2027-01-05T10:00", **mondays, last_day=date(2027, 1, 13))  # from a Tuesday on
    assert [s[:10] for s, *_ in found] == ["2027-01-06", "2027-01-11", "2027-01-13"]
    weekly = said("2027-01-05T09:00", "2027-01-05T10:00", every="week", until=at("2027-01-19T09:00"))
    assert [s[:10] for s, *_ in weekly] == ["2027-01-05", "2027-01-12", "2027-01-19"]
    assert len(said("2027-01-05T09:00", "2027-01-05T10:00", count=MOST)) == MOST
    weekends = said("2027-01-05T09:00", "2027-01-05T10:00", days=frozenset((5, 6)), count=3)
    assert [s[:10] for s, *_ in weekends] == ["2027-01-09", "2027-01-10", "2027-01-16"]


@pytest.mark.parametrize(
    ("start", "end", "rule", "field"),
    [
        ("2027-01-05T09:00", "2027-01-05T09:00", {"count": 2}, "ends_at"),
        ("2027-01-05T09:00", "2027-01-05T10:00", {}, "repeat.until"),
        ("2027-01-05T09:00", "2027-01-05T10:00", {"count": 2, "last_day": date(2027, 2, 1)}, "repeat.until"),
        ("2027-01-05T09:00", "2027-01-05T10:00", {"count": 0}, "repeat.count"),
        ("2027-01-05T09:00", "2027-01-05T10:00", {"last_day": date(2027, 1, 4)}, "repeat.until"),
        ("2027-01-05T09:00", "2027-01-05T10:00", {"last_day": date(2030, 1, 4)}, "repeat.until"),
        ("2027-01-05T09:00", "2027-01-06T10:00", {"count": 2}, "repeat.days"),
        ("9998-12-30T09:00", "9998-12-30T10:00", {"count": 366, "days": frozenset((0,))}, "repeat.until"),
    ],
)
def test_rules_that_cannot_be(start: str, end: str, rule: dict, field: str) -> None:
    with pytest.raises(RepeatError) as err:
        windows(at(start), at(end), Rule("day", BERLIN, **rule))
    assert err.value.field == field


@given(
    zone=st.sampled_from(ZONES),
    start=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    minutes=st.integers(1, 23 * 60),
    days=st.frozensets(st.integers(0, 6)),
    every=st.sampled_from(("day", "week")),
    count=st.integers(1, 60),
)
@example(BERLIN, datetime(2027, 3, 27, 1, 30), 60, frozenset(), "day", 3)  # 23 h day
@example(BERLIN, datetime(2027, 10, 30, 0, 30), 60, frozenset(), "day", 3)  # 25 h day
@example(ZONES[3], datetime(2027, 4, 3, 14, 45), 30, frozenset(), "day", 3)  # half an hour twice
def test_whatever_the_clocks_do(zone, start, minutes, days, every, count) -> None:
    begin = int(start.replace(tzinfo=UTC).timestamp() * 1000)
    end = begin + minutes * 60_000
    try:
        found = windows(begin, end, Rule(every, zone, days, count=count))
    except RepeatError as err:
        assume(minutes < 22 * 60)  # only a long window can meet the next, across a night of one hour less
        raise AssertionError(f"refused: {err}") from err
    assert len(found) == count
    first = datetime.fromtimestamp(begin / 1000, zone)
    for window in found:
        assert window.start < window.end
        local = datetime.fromtimestamp(window.start / 1000, zone)
        assert local.weekday() in (days or (range(7) if every == "day" else (first.weekday(),))) or window.moved
        if not window.moved:
            assert local.replace(tzinfo=None).time() == first.replace(tzinfo=None).time()
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    assert all(b.start - a.start >= DAY - 2 * HOUR for a, b in itertools.pairwise(found))
    whole = windows(begin, end, Rule(every, zone, days, until=found[-1].start))
    assert whole == found, "the same windows, however their end is said"
