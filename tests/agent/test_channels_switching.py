"""Switching: the door, the drain and its end, stopping, freeing, what changes on the way."""

from __future__ import annotations

import pytest

from agent.interfaces import Holder
from tests.agent.channel_world import World, launch, step
from tests.agent.virtual_time import now_ms, run

A, B, D = launch("A"), launch("B", load=300.0), launch("D")
SOMEBODY = Holder("GPU-1", 4321, "bob", "python train.py", 12_300_000_000)


async def serving(target=D, **runtime) -> World:
    """A channel that has loaded its default, at 100 s."""
    world = World(**runtime)
    world.plan(step(0, target))
    await world.until(100)
    assert world.phase == "ready"
    return world


def test_an_end_with_nothing_in_flight_has_its_sigterm_at_once() -> None:
    async def main() -> None:
        world = await serving()
        world.plan(step(0, D), step(200, A))
        await world.until(262.4)
        assert [c[:2] for c in world.door.calls] == [(200.0, "close")]
        assert world.stops("D") == [pytest.approx(200, abs=0.01)]
        assert world.phase == "ready"
        ready = next(at for at, s in world.statuses if s["phase"] == "ready" and s["running_model"] == "A")
        assert ready - 200 <= 1.0 + 0.1 + 60 + 0.25, "stop + memory + load, and a quarter of a second"
        await world.end()

    run(main())


def test_the_entry_says_where_a_switch_goes() -> None:
    async def main() -> None:
        world = await serving()
        assert world.door.entry["open"] is True
        assert world.door.entry["serving"]["model"] == "D"
        assert world.door.entry["switching"] is None
        world.door.running = 1
        world.plan(step(100, A))
        await world.until(101)
        entry = world.door.entry
        assert (entry["open"], entry["phase"]) == (False, "draining")
        assert entry["switching"] == {"identity": A.identity, "retry_drain": False, "ready_at_ms": 220_000}
        assert entry["steps"][0]["target"] == {
            "identity": A.identity,
            "model": "A",
            "preset": None,
            "load_seconds": 60.0,
        }
        assert world.task.status()["switching_to"] == A.identity
        assert world.task.status()["drain_deadline_ms"] == 130_000
        world.door.finish()
        await world.until(101.5)
        assert (world.door.entry["phase"], world.door.entry["serving"]) == ("stopping", None)
        assert world.door.entry["switching"]["ready_at_ms"] == 101_000 + 90_000
        await world.until(110)
        assert world.door.entry["open"] is True
        started = round(world.starts("A")[0] * 1000)
        assert world.door.entry["loading"] == {
            "identity": A.identity,
            "model": "A",
            "preset": None,
            "ready_at_ms": started + 60_000,
        }
        assert world.task.status()["load_started_at_ms"] == started
        assert world.task.status()["load_estimated_seconds"] == 60
        await world.end()

    run(main())


def test_the_door_is_shut_before_the_gateways_are_asked() -> None:
    async def main() -> None:
        world = await serving()
        world.door.ack_seconds = 0.5
        world.plan(step(100, A))
        await world.until(100.2)
        assert world.door.entry["open"] is False
        assert world.stops() == [], "only an acknowledged zero is zero"
        await world.until(101)
        assert world.stops() == [pytest.approx(100.5)]
        await world.end()

    run(main())


def test_running_requests_finish_then_it_stops() -> None:
    async def main() -> None:
        world = await serving()
        world.door.running = 2
        world.plan(step(100, A))
        await world.until(112)
        assert world.stops() == []
        world.door.finish()
        await world.until(113)
        assert world.stops() == [112]
        assert "cut" not in [c[1] for c in world.door.calls]
        await world.end()

    run(main())


def test_the_drains_end_cuts_then_stops() -> None:
    async def main() -> None:
        world = await serving()
        world.door.running = 2
        world.plan(step(100, A))
        await world.until(140)
        assert [(round(at, 2), what) for at, what, _ in world.door.calls] == [(100.0, "close"), (130.0, "cut")]
        assert world.door.calls[1][2] == 90
        assert world.stops() == [130]
        await world.end()

    run(main())


@pytest.mark.parametrize(
    ("target", "why", "start", "cut"),
    [
        (A, "preload", 280.0, 130.0),
        (A, "preload", 205.0, 115.0),  # start - load - STOP_TIMEOUT
        (A, "preload", 189.0, 130.0),  # booked late: as usual
        (None, "clearing", 150.0, 120.0),  # exclusive: start - STOP_TIMEOUT
        (None, "clearing", 129.0, 130.0),
    ],
)
def test_before_a_reservation_the_drain_ends_early_enough(target, why, start, cut) -> None:
    async def main() -> None:
        world = await serving()
        world.door.running = 1
        world.plan(
            step(0, D), step(100, target, why, prepares_for=round(start * 1000)), step(start, target, "reserved")
        )
        await world.until(400)
        assert [at for at, what, _ in world.door.calls if what == "cut"] == [pytest.approx(cut)]
        await world.end()

    run(main())


def test_the_drain_is_called_off_when_the_target_comes_back() -> None:
    async def main() -> None:
        world = await serving()
        world.door.running = 1
        world.plan(step(100, A))
        await world.until(110)
        assert world.phase == "draining"
        world.plan(step(110, D))
        await world.until(111)
        assert (world.phase, world.door.entry["open"]) == ("ready", True)
        await world.until(300)
        assert world.stops() == []
        assert "cut" not in [c[1] for c in world.door.calls]
        await world.end()

    run(main())


def test_a_drain_called_off_before_its_acknowledgement_says_nothing_later() -> None:
    async def main() -> None:
        world = await serving()
        world.door.ack_seconds = 5.0
        world.plan(step(100, A))
        await world.until(102)
        world.plan(step(102, D))
        await world.until(103)
        world.door.running = 1
        world.plan(step(103, B))
        await world.until(107)
        assert world.stops() == [], "the first acknowledgement was for another drain"
        await world.until(109)
        assert (world.phase, world.stops()) == ("draining", [])
        await world.end()

    run(main())


def test_after_sigterm_the_stop_is_finished() -> None:
    async def main() -> None:
        world = await serving(stop_seconds=10.0)
        world.plan(step(100, A))
        await world.until(105)
        world.plan(step(105, D))
        await world.until(180)
        assert world.stops("D") == [pytest.approx(100, abs=0.01)]
        assert world.starts() == [pytest.approx(0.1), pytest.approx(110.1, abs=0.01)]
        assert (world.phase, world.task.status()["running_model"]) == ("ready", "D")
        await world.end()

    run(main())


def test_nothing_is_loaded_that_is_no_longer_wanted() -> None:
    async def main() -> None:
        world = await serving(stop_seconds=10.0)
        world.plan(step(100, A))
        await world.until(105)
        world.plan(step(105, B))
        await world.until(200)
        assert world.starts("A") == []
        assert world.starts("B") == [pytest.approx(110.1, abs=0.01)]
        await world.end()

    run(main())


def test_a_change_while_the_program_is_being_started() -> None:
    async def main() -> None:
        world = await serving()
        world.plan(step(100, A), step(101.2, None, "idle"))
        await world.until(150)
        assert (world.phase, world.runtime.alive()) == ("off", [])
        assert world.door.entry["serving"] is None
        await world.end()

    run(main())


def test_requests_go_on_when_a_reservation_begins_on_the_same_target() -> None:
    async def main() -> None:
        world = await serving()
        world.door.running = 3
        world.plan(step(100, D), step(150, D, "reserved", reservation_id="r1"), step(200, D))
        await world.until(300)
        assert world.door.calls == []
        assert world.stops() == []
        await world.end()

    run(main())


def test_exclusive_clears_the_card() -> None:
    async def main() -> None:
        world = await serving()
        world.plan(
            step(0, D), step(200, None, "clearing", prepares_for=290_000), step(290, None, "exclusive"), step(400, D)
        )
        await world.until(300)
        assert (world.phase, world.runtime.alive()) == ("off", [])
        await world.until(470)
        assert (world.phase, world.starts("D")[1]) == ("ready", pytest.approx(400.1))
        await world.end()

    run(main())


def test_a_stop_that_never_ends_blocks_and_nothing_is_started_beside_it() -> None:
    async def main() -> None:
        world = await serving(stop_works=False)
        world.plan(step(100, A))
        await world.until(400)
        assert world.phase == "blocked"
        assert world.starts("A") == []
        (event,) = world.told("blocked")
        assert "pid 2001" in event["text"]
        assert "pid 2001" in world.door.entry["blocked"]
        assert "pid 2001" in world.task.status()["detail"]
        world.runtime.stop_works = True
        await world.until(600)
        assert (world.phase, world.task.status()["running_model"]) == ("ready", "A")
        assert world.door.entry["blocked"] is None
        await world.end()

    run(main())


def test_a_foreign_process_on_the_gpu() -> None:
    """Blocked, the holder named, started as soon as it is gone."""

    async def main() -> None:
        world = await serving(free_seconds=10.0)
        world.runtime.holders = [SOMEBODY]
        world.plan(step(100, A))
        await world.until(120)
        status = world.task.status()
        assert (world.phase, status["failure"]["category"]) == ("blocked", "gpu_busy")
        assert "python train.py (pid 4321, user bob, 12.3 GB on GPU-1)" in status["failure"]["reason"]
        assert "4321" in world.door.entry["blocked"]
        await world.until(500)
        assert world.starts("A") == []
        assert len(world.told("blocked")) == 1
        world.runtime.holders, world.runtime.free_seconds = [], 0.0
        await world.until(570)
        assert world.starts("A") == [pytest.approx(500.5, abs=0.6)]
        assert (world.phase, world.task.status()["failure"]) == ("ready", None)
        await world.end()

    run(main())


def test_memory_that_stays_held_by_nobody_does_not_hinder() -> None:
    async def main() -> None:
        world = await serving()
        world.runtime.memory = "2 GB stay in use"
        world.plan(step(100, A))
        await world.until(110)
        assert world.phase == "loading"
        assert any("2 GB stay in use" in s["detail"] for _, s in world.statuses) or world.starts("A")
        await world.end()

    run(main())


def test_without_a_plan_what_runs_stays_and_nothing_starts() -> None:
    async def main() -> None:
        world = World()
        await world.until(50)
        assert (world.phase, world.starts()) == ("off", [])
        world.plan(step(0, D))
        await world.until(120)
        world.steps = ()
        await world.restart()
        await world.until(200)
        assert (world.phase, world.stops()) == ("ready", [])
        assert world.door.entry["serving"]["model"] == "D"
        await world.end()

    run(main())


def test_it_wakes_only_when_something_is_due() -> None:
    async def main() -> None:
        world = await serving()
        turns = []
        turn = world.task._turn
        world.task._turn = lambda: (turns.append(now_ms()), turn())[1]  # type: ignore[method-assign]
        world.plan(step(0, D), step(3700, A))
        await world.until(3699)
        assert len(turns) <= 3
        await world.until(3700)
        assert world.phase != "ready"
        await world.end()

    run(main())
