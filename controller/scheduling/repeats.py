"""Repeated bookings: the windows of a rule, by wall clock in a named zone. Pure; preview and result use this one arithmetic.

A window keeps its times of day whatever the clocks do: 22:00–06:00 is 7 h or 9 h long in the nights when they change.
A start that the clocks skip begins as much later (02:30 becomes 03:30), its length kept; a time that comes twice is its
first coming.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from controller.said import say
from controller.scheduling.types import Millis

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MOST = 366  # windows of one rule
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class RepeatError(ValueError):
    """A rule cannot be used; `field` names the part of it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Rule:
    """Every day, or every week, on `days` (0 = Monday; empty: every day, or the first window's weekday). It ends after
    `count` windows, with the day `last_day`, or at the instant `until` (the last start). One of the three is set."""

    every: Literal["day", "week"]
    zone: ZoneInfo
    days: frozenset[int] = frozenset()
    count: int | None = None
    last_day: date | None = None
    until: Millis | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """[start, end); `moved`: its start does not exist on that day, and begins later."""

    start: Millis
    end: Millis
    moved: bool = False


def windows(start: Millis, end: Millis, rule: Rule) -> list[Window]:
    """The windows of a rule whose first day is that of [start, end), in order, none touching another's time. Raises
    RepeatError where there are none, too many, or they overlap each other."""
    if end <= start:
        raise RepeatError("ends_at", say("must be later than starts_at"))
    if sum(x is not None for x in (rule.count, rule.last_day, rule.until)) != 1:
        raise RepeatError("repeat.until", say("say either until or count"))
    if rule.count is not None and not 1 <= rule.count <= MOST:
        raise RepeatError("repeat.count", say("1 to %(most)s", most=MOST))
    found: list[Window] = []
    for window in _all(start, end, rule):
        if rule.until is not None and window.start > rule.until:
            break
        if len(found) == MOST:
            raise RepeatError("repeat.until", say("that is more than %(most)s bookings; end it earlier", most=MOST))
        if found and window.start < found[-1].end:
            raise RepeatError("repeat.days", say("the bookings would overlap each other; make them shorter or rarer"))
        found.append(window)
        if len(found) == rule.count:
            break
    if not found:
        raise RepeatError("repeat.until", say("ends before the first booking"))
    return found


def _all(start: Millis, end: Millis, rule: Rule) -> Iterator[Window]:
    first, last = _wall(start, rule.zone), _wall(end, rule.zone)
    length = last - first
    if length <= timedelta(0):  # the window lies over the hour that comes twice
        length = timedelta(milliseconds=end - start)
    days = rule.days or (frozenset(range(7)) if rule.every == "day" else frozenset((first.weekday(),)))
    try:
        for number in range(MOST * 7 + 7):
            day = first + timedelta(days=number)
            if rule.last_day is not None and day.date() > rule.last_day:
                return
            if day.weekday() in days:
                yield Window(start, end) if number == 0 else _on(day, length, rule.zone)
    except OverflowError:
        raise RepeatError("repeat.until", say("lies beyond the calendar")) from None


def _on(start: datetime, length: timedelta, zone: ZoneInfo) -> Window:
    begin, missing = _instant(start, zone)
    if missing:
        return Window(begin, begin + length // _MS, True)
    return Window(begin, _instant(start + length, zone)[0])


def _wall(instant: Millis, zone: ZoneInfo) -> datetime:
    """The clock on the wall, without a zone."""
    return (_EPOCH + timedelta(milliseconds=instant)).astimezone(zone).replace(tzinfo=None)


def _instant(wall: datetime, zone: ZoneInfo) -> tuple[Millis, bool]:
    """When the clock on the wall (first) shows that, and whether it never does: then as much later as is skipped."""
    moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return (moment - _EPOCH) // _MS, moment.astimezone(zone).replace(tzinfo=None) != wall
