"""The agent's golden cases that are histories, with the task itself, in virtual time; states are in core/test_step.py."""

from __future__ import annotations

import pytest

from agent.core.types import Timing
from agent.interfaces import Trouble
from tests.agent.channel_world import CRASH, World, launch, step
from tests.agent.virtual_time import run

A, B, D = launch("A"), launch("B", load=300.0), launch("D")
MISSING = Trouble("missing_file", "the file of A is not there")


def reserved(target=A, fallback=D, **more):
    return step(0, target, "reserved", fallback=fallback, reservation_id="r1", **more)


def test_fallback_serves_and_the_retry_is_counted_from_its_being_ready() -> None:
    """A failed at 0 s, D ready at 60 s: A tried at 90 s; it fails at 95 s, D ready at 155 s, A again at 215 s."""

    async def main() -> None:
        world = World(loads={"A": CRASH, "D": 59.9}, free_seconds=0.0, stop_seconds=0.0)
        world.plan(reserved())
        await world.until(1)
        assert world.starts("A") == [0.0]
        await world.until(61)
        assert (world.phase, world.task.status()["fallback"]) == ("ready", True)
        ready_at = world.task.view.process.ready_at / 1000
        assert ready_at == pytest.approx(60, abs=0.2)
        assert world.task.status()["failure"]["retry_at_ms"] == pytest.approx((ready_at + 30) * 1000)
        world.runtime.dies_after, world.runtime.loads["D"] = 5.0, 59.9
        await world.until(94)
        assert world.starts("A")[1] == pytest.approx(ready_at + 30, abs=0.01)
        await world.until(200)
        second = world.task.view.process.ready_at / 1000
        assert second == pytest.approx(155, abs=0.5)
        assert world.task.status()["failure"]["count"] == 2
        await world.until(240)
        assert world.starts("A")[2] == pytest.approx(second + 60, abs=0.01)
        assert len(world.told("failed")) == 1
        await world.end()

    run(main())


def test_missing_file_leaves_the_fallback_undisturbed() -> None:
    """A's file is missing: seven looks, D is never stopped; the interval ends at 600 s."""

    async def main() -> None:
        world = World(preflights={"A": MISSING})
        world.plan(step(0, D))
        await world.until(100)
        world.plan(step(0, D), step(100, A, "reserved", fallback=D, reservation_id="r1"))
        await world.until(2240)
        looks = [at for at, what, about in world.runtime.calls if (what, about) == ("preflight", "A")]
        assert looks == [100, 130, 190, 310, 550, 1030, 1630, 2230]
        assert world.starts() == [pytest.approx(0.1)]
        assert world.stops() == []
        assert world.door.calls == []
        assert world.task.status()["failure"]["retry_at_ms"] == 2_830_000
        assert world.task.status()["failure"]["category"] == "missing_file"
        assert len(world.told("failed")) == 1
        await world.end()

    run(main())


def test_both_failed() -> None:
    """Nothing runs; each is tried when its own interval is over."""

    async def main() -> None:
        world = World(loads={"A": CRASH, "D": CRASH}, dies_after=5.0, free_seconds=0.0)
        world.plan(reserved())
        await world.until(11)  # A failed at 5 s, D at 10 s
        assert world.phase == "retry_wait"
        assert world.task.status()["failure"]["retry_at_ms"] == 35_000
        assert world.door.entry["failure"]["retry_at_ms"] == 35_000
        await world.until(60)
        assert world.starts("A") == [0, 35]
        assert world.starts("D") == [5, 40]
        await world.end()

    run(main())


def test_without_a_fallback_the_tries_are_at_growing_intervals() -> None:
    """Retries fail at once: 30, 90, 210, 450, 930, 1530, 2130 s."""

    async def main() -> None:
        world = World(loads={"A": CRASH}, free_seconds=0.0)
        world.plan(reserved(fallback=None))
        await world.until(2200)
        assert world.starts("A") == pytest.approx([0, 30, 90, 210, 450, 930, 1530, 2130], abs=0.05)
        assert len(world.told("failed")) == 1
        assert [r["ok"] for r in world.loads] == [False] * 8
        await world.end()

    run(main())


def test_second_failure_of_an_episode() -> None:
    """A ready for 2 min, dies, second failure of the episode: retry in 60 s, no second notice."""

    async def main() -> None:
        world = World(loads={"A": CRASH}, free_seconds=0.0)
        world.plan(reserved(fallback=None))
        await world.until(1)
        world.runtime.loads["A"] = 10.0
        await world.until(45)
        assert world.phase == "ready"
        assert world.task.status()["failure"] is None, "ready ends the failure as shown"
        await world.until(160)
        assert len(world.told("recovered")) == 1
        world.runtime.crash()
        await world.until(161)
        assert world.task.status()["failure"]["retry_at_ms"] == 220_000
        await world.until(300)
        assert world.starts("A")[-1] == pytest.approx(220, abs=0.01)
        assert len(world.told("failed")) == 1
        assert len(world.told("recovered")) == 1, "once an episode"
        await world.end()

    run(main())


def test_a_new_episode_after_twelve_minutes() -> None:
    """A served 12 min, then crashed: retry in 30 s, a new episode."""

    async def main() -> None:
        world = World(loads={"A": CRASH}, free_seconds=0.0)
        world.plan(reserved(fallback=None))
        await world.until(1)
        world.runtime.loads["A"] = 10.0
        await world.until(41 + 720)
        world.runtime.crash()
        await world.until(762)
        failure = world.task.status()["failure"]
        assert (failure["count"], failure["retry_at_ms"]) == (1, 791_000)
        assert len({e["id"] for e in world.told("failed")}) == 2
        await world.end()

    run(main())


def test_an_edit_is_tried_at_once() -> None:
    async def main() -> None:
        world = World(loads={"A": CRASH}, free_seconds=0.0)
        world.plan(reserved(fallback=None))
        await world.until(250)
        assert world.task.status()["failure"]["count"] == 4
        world.runtime.loads["A"] = 1.0
        world.plan(reserved(launch("A", version=2), fallback=None))
        await world.until(252)
        assert world.starts("A")[-1] == 250
        assert (world.phase, world.task.status()["running"]) == ("ready", "id-A-None-2")
        await world.end()

    run(main())


def test_the_plan_moves_on_while_loading() -> None:
    """From A to B while A is still loading: the load of A is stopped, B starts."""

    async def main() -> None:
        world = World(free_seconds=0.0)
        world.plan(reserved())
        await world.until(20)
        world.plan(step(20, B, "reserved", reservation_id="r2"))
        await world.until(22)
        assert world.stops("A") == [20]
        assert world.starts("B") == [21]
        assert [c for c in world.door.calls if c[1] == "close"] == []
        await world.until(330)
        assert world.phase == "ready"
        await world.end()

    run(main())


def test_short_times_by_settings() -> None:
    async def main() -> None:
        world = World(loads={"A": CRASH}, free_seconds=0.0)
        world.timing = Timing(retry_min=0.2, retry_max=0.5)
        world.plan(reserved(fallback=None))
        await world.until(2)
        assert world.starts("A") == pytest.approx([0, 0.2, 0.6, 1.1, 1.6], abs=0.05)
        await world.end()

    run(main())
