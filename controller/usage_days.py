"""Hours by what channels did and requests served, a day: those that are over in sums, the rest added up when it is asked for.

The sums are made after the start and every night, and anew by `slotserve recount`: in short write transactions, a few days
each, so that nobody waits long and they are of what was there at that instant. Only what is over for an hour is summed;
what a node reports later is put in (requests), or the day is forgotten until the next night (what channels did).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller import spans
from controller.notify.language import zone_of
from controller.settings import Settings
from controller.spans import Booked, Hours
from controller.store import channel_states, state_days, usage
from controller.store.held import held
from controller.store.session import Store
from controller.store.state_days import Day
from controller.store.tables import ChannelState, User

SETTLED_MS = 3_600_000
DAYS_A_STEP = 3
REQUEST_DAYS_A_STEP = 30
MOST_ZONES = 24
PAUSE_SECONDS = 0.05  # between two steps: others want to write as well


def by_day(
    session: Session, start: int, end: int, zone: ZoneInfo, channel_ids: Collection[str] | None = None
) -> dict[tuple[str, str], Hours]:
    """Hours of [start, end) by (channel, day of that zone)."""
    if start >= end:
        return {}
    begins = day_starts(start, end, zone)
    edges = [max(start, at) for at, _ in begins]
    names = {edge: name for edge, (_, name) in zip(edges, begins, strict=True)}
    days = list(pairwise([*edges, end]))
    known = state_days.there(session, start, end)
    found = state_days.hours(session, [day for day in days if day in known], channel_ids)
    for run in _runs(day for day in days if day not in known):
        first, last = run[0][0], run[-1][1]
        bookings = held(session, first, last, channel_ids=channel_ids)
        found |= by_cut(session, first, last, [at for at, _ in run], channel_ids, bookings)
    return {(channel, names[at]): hours for (channel, at), hours in found.items()}


def by_cut(
    session: Session,
    start: int,
    end: int,
    cuts: Sequence[int],
    channel_ids: Collection[str] | None,
    bookings: Mapping[str, Sequence[Booked]],
    booked_only: bool = False,
) -> dict[tuple[str, int], Hours]:
    """The same from the changes themselves, by (channel, cut); the first of the cuts is `start`."""
    found: dict[tuple[str, int], Hours] = {}
    for span in spans.spans(channel_states.stream(session, channel_ids, start, end), bookings, start, end, cuts):
        if booked_only and span.booking is None:
            continue
        key = (span.row.channel_id, cuts[bisect_right(cuts, span.start) - 1])
        hours = found.get(key)
        if hours is None:
            hours = found[key] = Hours()
        hours.add(span)
    return found


def day_starts(start: int, end: int, zone: ZoneInfo) -> list[tuple[int, str]]:
    """(instant, day) of every local midnight from the one at or before `start` to before `end`: 23 and 25 h days are what
    they are."""
    day = datetime.fromtimestamp(start / 1000, zone).date()
    found: list[tuple[int, str]] = []
    while True:
        at = round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
        if at >= end:
            return found
        found.append((at, day.isoformat()))
        day += timedelta(days=1)


def add_up(store: Store, settings: Settings, now: int, end: threading.Event | None = None) -> int:
    """Sums up what is over and is not there yet; in how many steps. Done again it does nothing. `end`, once it is set, ends
    it between two steps."""
    until, steps, ended = now - SETTLED_MS, 0, end or threading.Event()
    with store.write() as session:
        state_days.forget(session, now)  # days that a clock which was ahead took to be over
    while _next_day(store, until) is not None and not ended.wait(PAUSE_SECONDS):
        with store.write() as session:
            usage.sum_days(session, until, REQUEST_DAYS_A_STEP)
        steps += 1
    for zone in _zones(store, settings):
        for days in _missing(store, zone, until):
            if ended.wait(PAUSE_SECONDS):
                return steps
            with store.write() as session:
                known = state_days.there(session, days[0][0], days[-1][1])
                for run in _runs(day for day in days if day not in known):  # unless another controller was faster
                    first, last = run[0][0], run[-1][1]
                    sums = by_cut(session, first, last, [at for at, _ in run], None, held(session, first, last))
                    state_days.write(session, run, sums)
            steps += 1
    return steps


def recount(store: Store, settings: Settings, now: int) -> int:
    """Forgets all sums and makes them anew; in how many steps."""
    with store.write() as session:
        usage.forget_days(session)
        state_days.forget(session)
    return add_up(store, settings, now)


def _next_day(store: Store, until: int) -> int | None:
    with store.read() as session:
        return usage.next_day(session, until)


def _zones(store: Store, settings: Settings) -> list[ZoneInfo]:
    """Whose days are summed: UTC's, the setting's, and those that people have chosen."""
    with store.read() as session:
        chosen = session.scalars(select(User.zone).where(User.zone.is_not(None)).distinct().order_by(User.zone)).all()
    names = dict.fromkeys(str(zone_of(name)) for name in ("UTC", settings.notify_zone, *chosen))
    return [ZoneInfo(name) for name in list(names)[:MOST_ZONES]]


def _missing(store: Store, zone: ZoneInfo, until: int) -> list[list[Day]]:
    """Days of that zone that are over and not there in sums, some at a time."""
    with store.read() as session:
        first = session.scalar(select(func.min(ChannelState.at)))
        if first is None or first >= until:
            return []
        cuts = [at for at, _ in day_starts(first, until, zone)]
        known = state_days.there(session, cuts[0], until)
    missing = [day for day in pairwise(cuts) if day not in known]
    return [run[i : i + DAYS_A_STEP] for run in _runs(missing) for i in range(0, len(run), DAYS_A_STEP)]


def _runs(days: Iterable[Day]) -> list[list[Day]]:
    """Days that follow one another, together."""
    found: list[list[Day]] = []
    for day in days:
        if found and found[-1][-1][1] == day[0]:
            found[-1].append(day)
        else:
            found.append([day])
    return found
