"""Bookings as an iCalendar file, by the `icalendar` library. Pure.

UIDs never change, SEQUENCE grows with every change of a booking, times are UTC, and a booking that is not going to be is
CANCELLED rather than gone: a calendar that has it takes it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from icalendar import Calendar, Event

STATUS = {"pending": "TENTATIVE", "rejected": "CANCELLED", "expired": "CANCELLED", "cancelled": "CANCELLED"}
REFRESH = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Entry:
    """A booking for a calendar; instants in ms. `changed_at` = when it came to be of this version."""

    id: str
    version: int
    status: str
    start: int
    end: int
    created_at: int
    changed_at: int
    summary: str
    description: str
    location: str
    url: str


def calendar(name: str, entries: Iterable[Entry]) -> bytes:
    """The file: the same bytes for the same bookings."""
    made = Calendar()
    made.add("prodid", "-//SlotServe//bookings//EN")
    made.add("version", "2.0")
    made.add("method", "PUBLISH")
    made.add("name", _line(name))
    made.add("x-wr-calname", _line(name))
    made.add("refresh-interval", REFRESH, parameters={"VALUE": "DURATION"})
    made.add("x-published-ttl", REFRESH)
    for entry in entries:
        made.add_component(_event(entry))
    return made.to_ical()


def _event(entry: Entry) -> Event:
    event = Event()
    event.add("uid", f"{entry.id}@slotserve")
    event.add("sequence", entry.version - 1)
    event.add("dtstamp", _instant(entry.changed_at))
    event.add("created", _instant(entry.created_at))
    event.add("last-modified", _instant(entry.changed_at))
    event.add("dtstart", _instant(entry.start))
    event.add("dtend", _instant(max(entry.end, entry.start + 1000)))
    event.add("status", STATUS.get(entry.status, "CONFIRMED"))
    event.add("transp", "TRANSPARENT")  # a machine is busy, not a person
    event.add("summary", _line(entry.summary))
    if entry.description:
        event.add("description", "\n".join(entry.description.splitlines()))
    event.add("location", _line(entry.location))
    if entry.url:
        event.add("url", entry.url)
    return event


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
