"""Times and durations as people type them. Pure: `now` and the zone are parameters, instants are milliseconds.

Accepted: RFC 3339 with an offset, `now`, `+2h`, `14:00` (today), `today 14:00`, `tomorrow 9:00`, `fri 9:00` (the next
one, not today), `2026-11-20 9:00`. A clock time is one of the person's zone; one that a change of the clocks skips or
repeats is refused, for nobody can know which instant is meant.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ACCEPTED = "RFC 3339 (2026-11-19T14:00Z), 14:00, tomorrow 9:00, fri 9:00, 2026-11-20 9:00, +2h or now"


EARLIEST, LATEST = 31_536_000_000, 253_370_764_800_000  # the years 1971 to 9998


class TimeError(ValueError):
    """Not a time or duration that can be used; the message says what would be."""


def parse_instant(text: str, now: int, zone: tzinfo, after: int | None = None) -> int:
    """`text` as ms since the epoch. With `after` a bare clock time is the first one later than it (ends, deadlines),
    else today's, also when it is past: what is past is for the controller to refuse. Raises TimeError."""
    words = text.strip().lower().split()
    plain = " ".join(words)
    if plain == "now":
        return now
    if plain.startswith("+"):
        return now + round(parse_duration(plain[1:]) * 1000)
    if _CLOCK.fullmatch(plain):
        return _bare_clock(plain, now, zone, after)
    if len(words) == 2 and _CLOCK.fullmatch(words[1]):
        return _on(_day(words[0], text, _today(now, zone)), words[1], zone)
    return _rfc3339(text.strip())


def is_clock(text: str) -> bool:
    """Whether it is a time of day without its day."""
    return bool(_CLOCK.fullmatch(text.strip().lower()))


def parse_duration(text: str) -> float:
    """Seconds of `90m`, `1h30m`, `2h`, `1.5h`, `45s`, `2d`; more than zero. Raises TimeError."""
    plain = re.sub(r"\s+", "", text.lower())
    match = _DURATION.fullmatch(plain)
    if not match or not any(match.groups()):
        raise TimeError(f"{text!r} is not a duration; write 90m, 1h30m or 2h")
    days, hours, minutes, seconds = (float(g or 0) for g in match.groups())
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise TimeError(f"{text!r} is no time at all; write 90m, 1h30m or 2h")
    if total > 366 * 86400:
        raise TimeError(f"{text!r} is longer than a year")
    return total


def rfc3339(instant: int) -> str:
    """The form of the API: UTC with Z, milliseconds only where there are any."""
    moment = _moment(instant)
    return moment.isoformat(timespec="milliseconds" if instant % 1000 else "seconds").replace("+00:00", "Z")


def from_api(text: str) -> int:
    """ms since the epoch of a time in an answer."""
    return _rfc3339(text)


def show(instant: int, now: int, zone: tzinfo) -> str:
    """For people: 14:28, the day only when it is not today, seconds only where there are any (rounded)."""
    moment, today = _moment(round(instant / 1000) * 1000).astimezone(zone), _today(now, zone)
    clock = moment.strftime("%H:%M:%S" if moment.second else "%H:%M")
    if moment.date() == today:
        return clock
    near = abs((moment.date() - today).days) < 7
    return f"{moment.strftime('%a') if near else moment.strftime('%Y-%m-%d')} {clock}"


def show_duration(seconds: float) -> str:
    """For people: 45 s, 12 min, 1 h 32 min, 2 d 3 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 60:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def local_zone(environ: dict[str, str] | None = None) -> tzinfo:
    """The person's zone: TZ, else the machine's; UTC where neither is known."""
    env = os.environ if environ is None else environ
    name = env.get("TZ", "").lstrip(":")
    if not name:
        link = Path("/etc/localtime")
        parts = str(link.resolve()).partition("/zoneinfo/") if link.exists() else ("", "", "")
        name = parts[2] or "UTC"
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def zone_name(zone: tzinfo) -> str:
    """What people call the zone."""
    return getattr(zone, "key", None) or str(zone)


def _moment(instant: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant)


def _millis(moment: datetime) -> int:
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _today(now: int, zone: tzinfo) -> date:
    return _moment(now).astimezone(zone).date()


def _bare_clock(text: str, now: int, zone: tzinfo, after: int | None) -> int:
    if after is None:
        return _on(_today(now, zone), text, zone)
    day = _today(after, zone)
    instant = _on(day, text, zone)
    return instant if instant > after else _on(day + timedelta(days=1), text, zone)


def _day(word: str, text: str, today: date) -> date:
    if word in ("today", "tomorrow"):
        return today + timedelta(days=word == "tomorrow")
    if word[:3] in _WEEKDAYS and word.isalpha():
        return today + timedelta(days=(_WEEKDAYS.index(word[:3]) - today.weekday() - 1) % 7 + 1)
    try:
        return date.fromisoformat(word)
    except ValueError:
        raise TimeError(f"{text!r} is not a time; write {ACCEPTED}") from None


def _on(day: date, text: str, zone: tzinfo) -> int:
    match = _CLOCK.fullmatch(text)
    assert match
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if (hour, minute, second) == (24, 0, 0):  # the end of the day
        return _on(day + timedelta(days=1), "0:00", zone)
    try:
        local = datetime.combine(day, time(hour, minute, second), zone)
    except ValueError:
        raise TimeError(f"{text!r} is not a time of day; 00:00 to 24:00") from None
    if local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        raise TimeError(f"{text} does not exist on {day} in {zone_name(zone)}: the clocks are put forward over it")
    first, second_time = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    if first != second_time:
        raise TimeError(
            f"{text} comes twice on {day} in {zone_name(zone)}; "
            f"write {local.replace(fold=0).isoformat()} or {local.replace(fold=1).isoformat()}"
        )
    return _millis(local)


def _rfc3339(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(f"{text!r} is not a time; write {ACCEPTED}") from None
    if moment.tzinfo is None:
        raise TimeError(
            f"{text!r} names no time zone; add Z or an offset such as +08:00, or write 14:00 for your own zone"
        )
    return _millis(moment)
