"""What a year is read from is what its rows come to: sums of days, to the millisecond, in whatever zone one asks."""

from __future__ import annotations

import random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import delete, func, select

from controller import retention, usage_days, usage_view
from controller.fleet import records
from controller.store import state_days, usage
from controller.store.channel_states import Doing, record
from controller.store.tables import ChannelDay, ChannelState, StateDay, Usage, UsageDay
from controller.times import parse
from protos import fleet_pb2
from tests.controller.api.conftest import DAY, HOUR, MIN, World
from tests.parts import BOTH

DATABASES = BOTH
# Days of 23 and 25 hours lie within, and offsets that are no whole hours.
FIRST, LAST = parse("2027-10-20T05:17:00Z"), parse("2027-11-12T21:43:11Z")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
PHASES = ("loading", "ready", "draining", "off", "retry_wait", "blocked", "unknown")


@pytest.fixture
def lived(w: World) -> World:
    """Three weeks of two channels, with bookings and requests at any instant."""
    rnd = random.Random(3)
    with w.store.write() as session:
        for channel in ("a", "b"):
            at = FIRST
            while at < LAST:
                phase = rnd.choice(PHASES)
                session.add(
                    ChannelState(
                        channel_id=channel, at=at, phase=phase, fallback=phase == "ready" and rnd.random() < 0.3
                    )
                )
                at += rnd.randrange(MIN, 14 * HOUR)
    w.now = FIRST
    while w.now < LAST - 2 * DAY:
        w.now += rnd.randrange(HOUR, 30 * HOUR)
        length = rnd.randrange(HOUR, 8 * HOUR)
        kind, channel = rnd.choice((("model", "n1/a"), ("exclusive", "n1/b"), ("model", "n1/b")))
        made = w.call("POST", "/reservations", w.wish(0, length, channel, kind=kind), rnd.choice(("maya", "noor")))
        if made.status_code == 201 and rnd.random() < 0.3:
            w.now += length // 2
            w.good("POST", f"/reservations/{made.get_json()['id']}/end", {"reason": "done"})
    rows = [served(w, f"r{n}", rnd.randrange(FIRST, LAST), rnd.choice(("maya", "noor")), rnd) for n in range(400)]
    reported(w, *rows)
    w.now = LAST
    return w


def reported(w: World, *rows: fleet_pb2.UsageRow) -> None:
    records.Records(w.store, lambda: w.now).usage("n", list(rows))


def served(w: World, i: str, at: int, who: str, rnd: random.Random) -> fleet_pb2.UsageRow:
    known = rnd.random() < 0.7
    return fleet_pb2.UsageRow(
        id=i, channel=rnd.choice("ab"), model=rnd.choice(("small", "only-b")), key_id=f"k-{who}", user_id=w.ids[who],
        at_ms=at, duration_seconds=rnd.random(), first_byte_seconds=rnd.choice((0.0, rnd.random())),
        status=rnd.choice((200, 200, 503)), outcome="ok", bytes_in=rnd.randrange(999), bytes_out=rnd.randrange(999),
        prompt_tokens=7 if known else None, completion_tokens=rnd.randrange(99) if known else None,
    )  # fmt: skip


def read(w: World, zone: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    with w.store.read() as session:
        found = usage_view.summary(session, start, end, w.now, ZoneInfo(zone), **more)
        rows = [r._asdict() for r in usage.totals(session, start, end, None, 1000, 0, by_key=True)]
    return rounded({**found, "rows": rows})


def rounded(data: Any) -> Any:
    """Seconds are added up in another order."""
    if isinstance(data, dict):
        return {name: rounded(value) for name, value in data.items()}
    if isinstance(data, list):
        return [rounded(value) for value in data]
    return pytest.approx(data, abs=0.01) if isinstance(data, float) else data


def every(w: World) -> list[dict[str, Any]]:
    found = []
    for zone in ZONES:
        for start, end in (
            (FIRST - 3 * DAY, LAST + DAY),
            (FIRST + 2 * DAY + 12345, LAST - 3 * DAY + 777),
            (FIRST + 9 * HOUR, FIRST + 15 * HOUR),
            (parse("2027-10-31T00:00:00Z"), parse("2027-11-02T00:00:00Z")),
        ):
            found.append(read(w, zone, start, end))
    found.append(read(w, "UTC", FIRST, LAST, user_id=w.ids["maya"], theirs=True))
    found.append(read(w, "UTC", FIRST, LAST, user_id=w.ids["maya"]))
    found.append(read(w, "Asia/Kolkata", FIRST, LAST, channel=("b", "n", "b")))
    return found


def forget(w: World) -> None:
    with w.store.write() as session:
        usage.forget_days(session)
        state_days.forget(session)


def counts(w: World) -> tuple[int, ...]:
    with w.store.read() as session:
        return tuple(session.scalar(select(func.count()).select_from(t)) or 0 for t in (UsageDay, ChannelDay, StateDay))


def add_up(w: World) -> None:
    for name, zone in zip(w.ids, ZONES, strict=True):
        w.good("PATCH", f"/users/{w.ids[name]}", {"zone": zone})
    usage_days.add_up(w.store, w.ctx.settings, w.now)


def test_sums_of_days_say_what_the_rows_say(lived: World) -> None:
    w = lived
    direct = every(w)
    assert counts(w) == (0, 0, 0)
    add_up(w)
    summed = counts(w)
    assert all(summed)
    assert every(w) == direct
    add_up(w)  # done again it does nothing
    assert counts(w) == summed
    with w.store.write() as session:  # and the rows are really not read any more
        session.execute(delete(Usage).where(Usage.at < LAST - 5 * DAY))
        session.execute(delete(ChannelState).where(ChannelState.at < LAST - 5 * DAY))
    start, end = parse("2027-10-22T00:00:00Z"), parse("2027-11-01T00:00:00Z")
    assert read(w, "UTC", start, end)["totals"]["requests"] > 0
    assert read(w, "UTC", start, end)["totals"]["served"] != pytest.approx(0, abs=0.01)


def test_what_nodes_report_late_counts_as_well(lived: World) -> None:
    w, rnd = lived, random.Random(5)
    add_up(w)
    people = ("maya", "noor", "tom")
    late = [served(w, f"late{n}", rnd.randrange(FIRST - 2 * DAY, LAST), rnd.choice(people), rnd) for n in range(40)]
    reported(w, *late)
    reported(w, *late[::3])  # again: counted once
    before = counts(w)
    with w.store.write() as session:  # a node was away, and says since when its channel has been ready
        session.execute(delete(ChannelState).where(ChannelState.channel_id == "a", ChannelState.at > LAST - 6 * DAY))
        session.add(ChannelState(channel_id="a", at=LAST - 6 * DAY, phase="unknown"))
    state_forgotten = counts(w)
    with w.store.write() as session:
        record(session, {"a": Doing("ready", "small", since=LAST - 6 * DAY + HOUR)}, w.now)
    assert state_forgotten == before
    assert counts(w)[2] < before[2]
    summed = every(w)
    add_up(w)
    again = every(w)
    forget(w)
    direct = every(w)
    assert summed == direct
    assert again == direct


def test_a_day_that_a_clock_ahead_took_to_be_over_is_not_kept(lived: World) -> None:
    w = lived
    usage_days.add_up(w.store, w.ctx.settings, w.now + 3 * DAY)
    with w.store.write() as session:
        record(session, {"a": Doing("off")}, w.now + MIN)
    w.now += 2 * DAY
    with w.store.read() as session:
        assert not state_days.there(session, LAST, LAST + 4 * DAY)
    usage_days.add_up(w.store, w.ctx.settings, w.now + 3 * DAY)
    usage_days.add_up(w.store, w.ctx.settings, w.now)
    with w.store.read() as session:
        assert not [day for day in state_days.there(session, LAST, LAST + 9 * DAY) if day[1] > w.now]


def test_made_anew_it_is_the_same(lived: World) -> None:
    w = lived
    add_up(w)
    before, summed = every(w), counts(w)
    assert usage_days.recount(w.store, w.ctx.settings, w.now) > 0
    assert counts(w) == summed
    assert every(w) == before


def test_sums_go_with_what_they_are_of(lived: World) -> None:
    w = lived
    add_up(w)
    settings = w.ctx.settings.model_copy(update={"retain_days_usage": 10, "retain_days_states": 10})
    retention.prune(w.store, None, settings, w.now)
    edge = LAST - 10 * DAY
    with w.store.read() as session:
        assert session.scalar(select(func.min(UsageDay.day))) == edge - edge % DAY
        assert session.scalar(select(func.min(Usage.at))) >= edge - edge % DAY
        assert session.scalar(select(func.min(StateDay.start_at))) >= edge
    summed = [read(w, zone, edge, LAST) for zone in ZONES]
    forget(w)
    assert [read(w, zone, edge, LAST) for zone in ZONES] == summed
