"""Times and durations as people type them: a table, with the 23 h and the 25 h day."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli import times

SHANGHAI, BERLIN = ZoneInfo("Asia/Shanghai"), ZoneInfo("Europe/Berlin")


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


NOW = at("2026-11-19T06:28:04Z")  # Thursday, 14:28:04 in Shanghai


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-19T14:00Z", "2026-11-19T14:00Z"),
        ("2026-11-19T14:00:01.250+08:00", "2026-11-19T06:00:01.250Z"),
        ("14:00", "2026-11-19T06:00Z"),  # past, and said as typed: the controller refuses it
        ("16:00", "2026-11-19T08:00Z"),
        (" 16:00:30 ", "2026-11-19T08:00:30Z"),
        ("24:00", "2026-11-19T16:00Z"),
        ("today 9:00", "2026-11-19T01:00Z"),
        ("tomorrow 9:00", "2026-11-20T01:00Z"),
        ("Tomorrow  09:00", "2026-11-20T01:00Z"),
        ("fri 9:00", "2026-11-20T01:00Z"),
        ("thursday 9:00", "2026-11-26T01:00Z"),  # the next one, not today
        ("2026-12-01 9:00", "2026-12-01T01:00Z"),
        ("+2h", "2026-11-19T08:28:04Z"),
        ("+1h30m", "2026-11-19T07:58:04Z"),
        ("now", "2026-11-19T06:28:04Z"),
    ],
)
def test_instants(text: str, expected: str) -> None:
    assert times.parse_instant(text, NOW, SHANGHAI) == at(expected)


def test_a_clock_time_after_another() -> None:
    """An end is the first such time after the start, also over midnight."""
    start = at("2026-11-19T15:00Z")  # 23:00
    assert times.parse_instant("1:00", NOW, SHANGHAI, after=start) == at("2026-11-19T17:00Z")
    assert times.parse_instant("23:30", NOW, SHANGHAI, after=start) == at("2026-11-19T15:30Z")
    assert times.parse_instant("23:00", NOW, SHANGHAI, after=start) == at("2026-11-20T15:00Z")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-11-19T14:00", "no time zone"),
        ("25:00", "not a time of day"),
        ("14:60", "not a time of day"),
        ("soon", "not a time"),
        ("", "not a time"),
        ("+", "not a duration"),
        ("-2h", "not a time"),
        ("someday 9:00", "not a time"),
        ("2026-02-30 9:00", "not a time"),
    ],
)
def test_what_is_no_time(text: str, says: str) -> None:
    with pytest.raises(times.TimeError, match=says):
        times.parse_instant(text, NOW, SHANGHAI)


def test_days_of_23_and_25_hours() -> None:
    """The clocks go forward on 2027-03-28 and back on 2026-10-25 in Berlin, at 2:00 and 3:00."""
    before = at("2027-03-27T12:00Z")
    assert times.parse_instant("tomorrow 9:00", before, BERLIN) == at("2027-03-28T07:00Z")
    assert times.parse_instant("today 9:00", before, BERLIN) == at("2027-03-27T08:00Z")
    with pytest.raises(times.TimeError, match="does not exist"):
        times.parse_instant("tomorrow 2:30", before, BERLIN)
    autumn = at("2026-10-24T12:00Z")
    assert times.parse_instant("tomorrow 9:00", autumn, BERLIN) == at("2026-10-25T08:00Z")
    with pytest.raises(times.TimeError, match=r"comes twice.*02:30:00\+02:00 or .*02:30:00\+01:00"):
        times.parse_instant("tomorrow 2:30", autumn, BERLIN)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1h30m", 5400), ("2h", 7200), ("1.5h", 5400), ("45s", 45), ("2d", 172800), ("1 h 30 min", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert times.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0m", "h", "90", "-1h", "1h-30m", "30m1h", "two hours", "9999999d", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(times.TimeError):
        times.parse_duration(text)


@given(st.integers(0, 4102444800000))
def test_there_and_back(instant: int) -> None:
    assert times.from_api(times.rfc3339(instant)) == instant
    assert times.rfc3339(instant).endswith("Z")


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_clear_error(text: str) -> None:
    for parse in (lambda: times.parse_instant(text, NOW, SHANGHAI), lambda: times.parse_duration(text)):
        with contextlib.suppress(times.TimeError):  # nothing else may come out
            parse()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-19T08:00Z", "16:00"),
        ("2026-11-19T08:00:05Z", "16:00:05"),
        ("2026-11-20T01:00Z", "Fri 09:00"),
        ("2026-12-20T01:00Z", "2026-12-20 09:00"),
    ],
)
def test_shown(text: str, shown: str) -> None:
    assert times.show(at(text), NOW, SHANGHAI) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(45, "45 s"), (5520, "1 h 32 min"), (7200, "2 h"), (183600, "2 d 3 h")])
def test_shown_durations(seconds: float, shown: str) -> None:
    assert times.show_duration(seconds) == shown


def test_the_persons_zone() -> None:
    assert times.local_zone({"TZ": "Asia/Shanghai"}) == SHANGHAI
    assert times.local_zone({"TZ": "../etc/passwd"}) is UTC
    assert times.local_zone({"TZ": "No/Where"}) is UTC
