"""The controller's clock is set, forward and back: everything is decided anew, and what was over too early goes on."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from agent.plan import parse
from controller.fleet import planner_store
from controller.store.tables import Audit, Reservation
from tests.controller.planner_world import START, World
from tests.parts import BOTH

DATABASES = BOTH
HOUR, MINUTE = 3600, 60


def made(tmp_path: Path, url: str) -> World:
    w = World(tmp_path, **({} if url.startswith("sqlite") else {"database_url": url}))
    asyncio.run(w.planner.notice_clock(0.0))
    return w


def set_clock(w: World, seconds: float, steady: float) -> list[tuple[str, str]]:
    """START + seconds by this machine's clock, `steady` seconds after the start by one that nobody sets."""
    w.now = START + int(seconds * 1000)
    asyncio.run(w.planner.notice_clock(steady * 1000))
    return w.look()


def statuses(w: World, *ids: str) -> list[str]:
    return [w.row(Reservation, id_).status for id_ in ids]


def test_forward_and_back_again(tmp_path: Path, database_url: str) -> None:
    w = made(tmp_path, database_url)
    w.book("runs", 0, 30 * MINUTE)
    w.book("asks", 40 * MINUTE, 50 * MINUTE, "B", status="pending", approved_at=None)
    w.book("taken", 31 * MINUTE, 39 * MINUTE, "B")
    assert set_clock(w, 10, 10)[0] == ("A", "reserved")
    w.pushed.clear()
    assert set_clock(w, HOUR + 20, 20)[0] == ("D", "default")
    assert w.pushed == ["n1", "n1"]  # that it may ask for the time, and the new plan
    assert statuses(w, "runs", "asks", "taken") == ["finished", "expired", "finished"]
    w.book("new", 35 * MINUTE, 45 * MINUTE, "B", status="pending", approved_at=None)
    w.set(Reservation, "asks", starts_at=START + 46 * MINUTE * 1000)
    assert set_clock(w, 30, 30)[0] == ("A", "reserved")  # the holder has what was booked, and nothing was moved
    assert statuses(w, "runs", "asks", "taken", "new") == ["approved", "pending", "finished", "pending"]
    assert w.row(Reservation, "runs").ended_at is None
    with w.store.read() as session:
        told = session.query(Audit).filter_by(action="reservation.reopened").all()
        assert {a.subject for a in told} == {"runs", "asks"}
    w.store.close()


def test_a_plan_after_a_step_back_is_in_the_order_of_time(tmp_path: Path, database_url: str) -> None:
    """What holds cannot have begun later than now; the node would refuse the plan."""
    w = made(tmp_path, database_url)
    w.book("r", 30 * MINUTE, 40 * MINUTE)
    assert set_clock(w, 2 * HOUR, 2 * HOUR)[0] == ("D", "default")
    set_clock(w, 10, 2 * HOUR + 1)
    stamp = w.planner.plan_for("n1")
    assert stamp is not None
    steps = parse(stamp[2], "n1", ("main",), {}).channels["main"]
    assert steps[0].at <= w.now
    assert all(one.at < two.at for one, two in itertools.pairwise(steps))
    assert [s.why for s in steps][:3] == ["default", "preload", "reserved"]
    w.store.close()


def test_a_clock_that_is_slewed_is_no_news(tmp_path: Path, database_url: str) -> None:
    w = made(tmp_path, database_url)
    w.look(10)
    looks = w.planner.looks
    w.now += 900
    asyncio.run(w.planner.notice_clock(10_000.0))
    w.look()
    assert w.planner.looks == looks
    w.store.close()


def test_what_was_over_too_early_is_found_at_the_start_of_a_term(tmp_path: Path, database_url: str) -> None:
    """The clock was ahead, and was set while no controller ran."""
    w = made(tmp_path, database_url)
    w.book("runs", 0, 30 * MINUTE)
    w.look(HOUR)
    assert statuses(w, "runs") == ["finished"]
    w.now, w.planner = START + 10_000, w.new_planner()
    asyncio.run(w.planner.notice_clock(0.0))
    assert w.look()[0] == ("A", "reserved")
    assert planner_store.reopen(w.store, w.now) == []
    w.store.close()
